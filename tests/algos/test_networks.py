"""The options of `net` apply to all networks of every algorithm, and a user's own networks can replace them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import ACTIVATIONS, Image
from rlplug_core.nets.heads import SquashedGaussian
from rlplug_core.nets.q_networks import Stream
from rlplug_core.testing import checks
from tests.algos.test_conformance import failures
from tests.algos.test_schedules import OFF, options_of
from tests.tables import for_each

OWN = f"{Path(__file__).parents[1]}/core/own_nets.py:make"
FACTORY = {"net.factory": OWN}
CONTINUOUS = ("acer-continuous", "crossq", "ddpg", "sac", "td3", "tqc")
ALGORITHMS = (
    "a2c", "a3c", "acer", "acktr", "appo", "c51", "dqn", "dueling-dqn", "impala", "iqn", "nstep-q", "ppo",
    "ppo-recurrent", "qrdqn", "r2d2", "sac-discrete", "trpo", "vac", "vpg", "vqn", "vsarsa", *CONTINUOUS,
)  # fmt: skip


def net_options(algorithm: str, **options: Any) -> dict[str, Any]:
    """Return options for all networks of an algorithm; CrossQ has its own option for critics."""
    names = ("net", "critic_net") if algorithm == "crossq" else ("net",)
    return {f"{name}.{option}": value for name in names for option, value in options.items()}


def env(algorithm: str) -> str:
    return "Continuous" if algorithm in CONTINUOUS else "Chain"


def test_initial_weights_apply_to_all_layers(make_learner: Callable[..., Any]) -> None:
    """Torch's layers start with biases, all others without."""
    faults = []
    for algorithm in ALGORITHMS:
        for init, biased in (("torch", True), ("orthogonal", False)):
            learner = make_learner(algorithm, env(algorithm), **net_options(algorithm, init=init))
            layers = [part for part in learner.modules() if isinstance(part, nn.Linear)]
            if len(layers) < 3 or {bool(layer.bias.any()) for layer in layers} != {biased}:
                faults.append(f"{algorithm} with {init}")
    assert not faults, faults


def test_activation_and_norm_apply_to_all_networks(make_learner: Callable[..., Any]) -> None:
    faults = []
    for algorithm in ALGORITHMS:
        norm = algorithm != "crossq"
        learner = make_learner(algorithm, env(algorithm), **net_options(algorithm, activation="elu", layer_norm=norm))
        activations = {part.activation for part in learner.modules() if hasattr(part, "activation")}
        activations |= {each for part in learner.modules() for each in getattr(part, "activations", ())}
        if activations != {ACTIVATIONS["elu"]}:
            faults.append(f"{algorithm}: activation")
        for part in learner.modules() if norm else ():
            linears = getattr(part, "linears", ())
            norms = getattr(part, "norms", ())
            if len(norms) != len(linears) - isinstance(part, Stream):
                faults.append(f"{algorithm}: norms of {type(part).__name__}")
    assert not faults, faults


def test_initial_weights_and_activation_apply_to_convolutions(make_learner: Callable[..., Any]) -> None:
    faults = []
    for algorithm in sorted({*ALGORITHMS} - {*CONTINUOUS}):
        for init, biased in (("torch", True), ("orthogonal", False)):
            learner = make_learner(algorithm, "Pixels", **{"net.init": init, "net.activation": "elu"})
            layers = [part for part in learner.modules() if isinstance(part, nn.Conv2d)]
            if len(layers) < 2 or {bool(layer.bias.any()) for layer in layers} != {biased}:
                faults.append(f"{algorithm} with {init}")
            if {part.activation for part in learner.modules() if isinstance(part, Image)} != {ACTIVATIONS["elu"]}:
                faults.append(f"{algorithm}: activation")
    assert not faults, faults


@for_each("algorithm", ALGORITHMS)
def test_every_algorithm_trains_a_custom_network(
    make_learner: Callable[..., Any], train_runner: Callable[..., Any], algorithm: str
) -> None:
    """Some updates change all its weights, in the policy and in the critics."""
    options: dict[str, Any] = {**net_options(algorithm, factory=OWN, hidden=[8]), "total_timesteps": 200, "num_envs": 4}
    if algorithm in ("a3c", "nstep-q", "impala", "appo"):
        options["inline"] = True
    if algorithm in (*CONTINUOUS, "c51", "dqn", "dueling-dqn", "iqn", "qrdqn", "sac-discrete", "acer"):
        options |= {"learning_starts": 50}
    if algorithm == "vpg":
        options |= {"n_steps": 20}
    if algorithm == "r2d2":
        options |= {"learning_starts": 64, "sequence_length": 6, "burn_in": 2, "n_step": 3, "batch_size": 4}
    if algorithm in ("appo", "impala", "ppo", "ppo-recurrent", "trpo"):
        options |= {"n_steps": 8}
    before = make_learner(algorithm, env(algorithm), **options)
    owns = [name for name, part in before.named_modules() if type(part).__name__ == "Own"]
    assert owns
    after = train_runner(algorithm, env(algorithm), **options).snapshot().state_dict()
    weights = {name: one for name, one in before.named_parameters() if one.requires_grad}
    moved = {name: not torch.equal(weights[name], after[name]) for name in weights if name.startswith(tuple(owns))}
    assert moved
    assert all(moved.values()), moved


#: These algorithms draw Box actions from a Gaussian without a tanh.
GAUSSIAN = ("a2c", "a3c", "appo", "impala", "acer-continuous", "acktr", "ppo", "ppo-recurrent", "trpo", "vac", "vpg")


def test_state_dependent_std_is_used_or_refused(make_learner: Callable[..., Any]) -> None:
    for algorithm in ALGORITHMS:
        if algorithm not in GAUSSIAN:
            with pytest.raises(UsageError, match=r"net\.std .* leave net\.std at its default"):
                make_learner(algorithm, env(algorithm), **{"net.std": "state"})
            continue
        counts = []
        for std in ("free", "state"):
            policy = make_learner(algorithm, "Continuous", **{"net.std": std}).policy
            counts.append(len([name for name, _ in policy.named_parameters() if "log_std" in name]))
        assert counts == [1, 0], algorithm


@pytest.mark.parametrize(("option", "value"), [("std", "state"), ("squash", True), ("log_std_init", -1.0)])
def test_gaussian_options_raise_for_discrete_actions(
    make_learner: Callable[..., Any], option: str, value: object
) -> None:
    with pytest.raises(UsageError, match=rf"net.{option} .* leave net.{option} at its default"):
        make_learner("ppo", "Chain", **{f"net.{option}": value})


def test_log_std_starts_at_its_option(make_learner: Callable[..., Any]) -> None:
    """A policy without this parameter refuses the option."""
    policy = make_learner("ppo", "Continuous", **{"net.log_std_init": -1.5}).policy
    (log_std,) = [one for name, one in policy.named_parameters() if "log_std" in name]
    assert log_std.tolist() == [-1.5] * len(log_std)
    with pytest.raises(UsageError, match="a parameter that std state does not have; leave it at 0"):
        make_learner("ppo", "Continuous", **{"net.log_std_init": -1.0, "net.std": "state"})


def test_squash_is_used_or_refused(make_learner: Callable[..., Any]) -> None:
    """A squashed policy keeps the parameter of `net.std`."""
    for algorithm in ALGORITHMS:
        if algorithm in GAUSSIAN and algorithm != "acer-continuous":
            policy = make_learner(algorithm, "Continuous", **{"net.squash": True}).policy
            assert isinstance(policy.head, SquashedGaussian), algorithm
            assert [name for name, _ in policy.named_parameters() if "log_std" in name], algorithm
        else:
            with pytest.raises(UsageError, match=r"leave net\.squash at"):
                make_learner(
                    algorithm, "Continuous" if algorithm in GAUSSIAN else env(algorithm), **{"net.squash": True}
                )


def test_squashed_actions_have_the_density_of_the_tanh(make_learner: Callable[..., Any]) -> None:
    """PPO's first ratio is 1; the greedy action is the tanh of the mean."""
    learner = make_learner("ppo", "Continuous", **{"net.squash": True})
    learner.policy.outputs[0].bias.data.fill_(1.5)
    agent = learner.agent()
    obs = np.random.default_rng(0).random((64, 1), np.float32)
    first = np.zeros(64, bool)
    agent.initial(64)
    drawn, greedy = (agent.act(obs, first, None, Clock(1), explore) for explore in (True, False))
    assert (np.abs(drawn.action) < 1).all()
    with torch.no_grad():
        outputs = learner.policy(torch.from_numpy(obs))
        density = learner.policy.head.log_prob(outputs, torch.from_numpy(drawn.action))
    np.testing.assert_allclose(drawn.extras["log_prob"], density, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(greedy.action, outputs[:, :1].tanh(), rtol=1e-5)
    assert greedy.action.min() > 0.85


@for_each("algorithm", ALGORITHMS)
def test_frozen_and_unused_layers_of_a_custom_network_stay(
    train_runner: Callable[..., Any], make_learner: Callable[..., Any], algorithm: str
) -> None:
    replay = OFF if algorithm in ("c51", "dqn", "dueling-dqn", "iqn", "qrdqn") else {}
    own = net_options(algorithm, factory=OWN.replace(":make", ":partly"))
    rows = {"n_steps": 16, "batch_size": 16} if algorithm == "ppo-recurrent" else {}
    options = {**options_of(algorithm), **replay, **rows, **own, "total_timesteps": 60}
    before = weights(make_learner(algorithm, env(algorithm), **options))
    after = weights(train_runner(algorithm, env(algorithm), **options).snapshot())
    assert {layer: before[layer] == after[layer] for layer in before} == {"frozen": True, "unused": True, "each": False}


def weights(learner: Any) -> dict[str, list[float]]:
    """Return the weights of the layers of every `Partly` in a learner."""
    parts = [module for module in learner.modules() if type(module).__name__ == "Partly"]
    layers = ("frozen", "unused", "each")
    return {layer: [w for one in parts for w in getattr(one, layer).weight.flatten().tolist()] for layer in layers}


#: Checks that a network may break: exact repetition, copies, other processes.
BREAKABLE = ("seeding", "agents", "save-load", "resume", "fresh-process", "evaluation", "copies", "async", "leaks")
SUBJECTS: dict[str, dict[str, Any]] = {
    "ppo": {**FACTORY, "net.shared": True},
    "a2c": {"net.shared": True, "net.layer_norm": True},
    "dqn": {**FACTORY, "batch_size": 16},
    "sac": {**FACTORY, "batch_size": 16, "net.hidden": [8]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_custom_network_passes_the_kit(name: str) -> None:
    assert not failures(check for check in checks(name, options=SUBJECTS[name]) if check.name in BREAKABLE)

"""Common features of value-based algorithms: priorities, targets, exploration, and draws only in `update`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_algos.value.c51 import C51
from rlplug_algos.value.dqn import DQN
from rlplug_algos.value.iqn import IQN
from rlplug_algos.value.nstep_q import NStepQ
from rlplug_algos.value.qrdqn import QRDQN
from rlplug_algos.value.vqn import VQN
from rlplug_algos.value.vsarsa import VSarsa
from rlplug_core.acting.epsilon_greedy import EpsilonGreedy, NoisyGreedy, Softmax
from rlplug_core.buffers.prioritized import PrioritizedReplay
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.clock import Clock
from rlplug_core.errors import BadConfig, UsageError
from rlplug_core.loop.actor import Actor
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.testing import Check, checks
from rlplug_core.testing.envs import Chain
from tests.algos.conftest import make_learner
from tests.algos.losses import q_draws, q_loss, q_losses
from tests.algos.test_dqn_loss import random_transitions, scatter
from tests.algos.test_lag import rollout_of
from tests.algos.test_options import ALGORITHMS
from tests.tables import for_each

NAMES = ["dqn", "c51", "qrdqn", "iqn"]
REPLAYING = [name for name, cls in ALGORITHMS.items() if cls in (DQN, C51, QRDQN, IQN)]
EVERY = [*REPLAYING, *(name for name, cls in ALGORITHMS.items() if cls in (VQN, VSarsa, NStepQ))]
BY_VALUES = ["dqn", "vqn", "vsarsa", "nstep-q"]
MIXED = f"{Path(__file__).with_name('probes.py')}:Mixed"


@pytest.mark.parametrize("name", NAMES)
def test_errors_become_priorities_and_weights_scale_the_loss(make_learner: Callable[..., Any], name: str) -> None:
    """With the real buffer: masses are (error + epsilon)^alpha, and weights are no longer equal."""
    options = {
        "priority.alpha": 0.6,
        "priority.eps": 0.01,
        "net.hidden": [8],
        "learning_starts": 64,
        "batch_size": 16,
        "n_step": 3,
    }
    learner = make_learner(name, "Chain", **options)
    clock = Clock(10_000)
    actor = Actor(Chain(4), learner, learner.agent(), learner.buffer(), clock)
    actor.reset(0)
    buffer: Any = actor.buffer
    assert isinstance(buffer, PrioritizedReplay)
    weights: list[torch.Tensor] = []
    for _ in range(60):
        step = actor.step()
        actor.buffer.add(step)
        for batch in actor.buffer.batches(clock):
            result = learner.update(batch, clock)
            actor.buffer.feedback(batch, result)
            assert (result.priority >= 0).all()
            expected = dict(
                zip(batch.index.tolist(), (torch.as_tensor(result.priority).double() + 0.01) ** 0.6, strict=True)
            )
            masses = buffer.tree.mass[np.array(list(expected)) % buffer.data.total]
            np.testing.assert_allclose(masses, [float(mass) for mass in expected.values()], rtol=1e-5)
            weights.append(batch.weight)
    assert len(weights) > 20
    assert any(bool((weight != 1).any()) for weight in weights)
    halved = random_transitions(8, torch.full((8,), 0.5))
    halved.extras = q_draws(learner, halved)
    losses, _ = q_losses(learner, halved)
    torch.testing.assert_close(q_loss(learner, halved)[0], 0.5 * losses.mean())


@for_each("name", REPLAYING)
def test_importance_weights_correct_priorities_fully_at_the_end(make_learner: Callable[..., Any], name: str) -> None:
    buffer = make_learner(name, "Chain", **{"priority.alpha": 0.5, "priority.beta": 0.2, "net.hidden": [8]}).buffer()
    assert isinstance(buffer, PrioritizedReplay)
    assert buffer.priority.alpha == 0.5
    assert [buffer.priority.beta(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.2, 0.6, 1.0])


SAMPLED: dict[str, object] = {
    "priority.alpha": 0.6,
    "priority.eviction": "sampled",
    "n_step": 3,
    "learning_starts": 200,
}
ABOUT_REPLAY = ("save-load", "resume", "copies", "termination", "truncation", "weight-zero", "pauses", "weight-scale")


@for_each("check", [c for c in checks("dqn", options={**SAMPLED, "buffer_size": 150}) if c.name in ABOUT_REPLAY])
def test_sampled_eviction_passes_the_kit(check: Check) -> None:
    """With a small replay, in which every new transition evicts one before the first update."""
    check()


def test_sampled_eviction_is_an_option_of_priorities(make_learner: Callable[..., Any]) -> None:
    assert type(make_learner("dqn", "Chain", **SAMPLED).buffer()) is SampledReplay
    assert type(make_learner("per-dqn", "Chain").buffer()) is PrioritizedReplay
    with pytest.raises(BadConfig, match=r"set priority\.alpha above 0"):
        make_learner("dqn", "Chain", **{"priority.eviction": "sampled"}).buffer()


@for_each("name", EVERY)
def test_all_names_take_dictionaries_numbers_and_masks(train_runner: Callable[..., Any], name: str) -> None:
    """A forbidden action raises. Each visited place has its own column of weights, which changes."""
    options = {
        "runner": "sync",
        "num_envs": 4,
        "net.hidden": [16, 16],
        "exploration_final_eps": 0.5,
        "learning_rate": 1e-2,
    }
    if name in REPLAYING:
        options |= {"learning_starts": 40, "batch_size": 16}
    before = make_learner(name, MIXED, options).q_network.encoder.linears[0].weight
    runner = train_runner(name, MIXED, **options, total_timesteps=400)
    assert runner.clock.updates > 10
    moved = (runner.snapshot().q_network.encoder.linears[0].weight != before).any(0)
    assert moved.tolist() == [False, False, *(place in (1, 2, 3, 4) for place in range(-1, 6))]


@pytest.mark.parametrize("name", NAMES)
def test_polyak_moves_the_target_by_tau_in_place(make_learner: Callable[..., Any], name: str) -> None:
    learner = make_learner(name, "Chain", tau=0.25, target_update_interval=2, learning_rate=1e-2, **{"net.hidden": [8]})
    scatter(learner)
    memory = [parameter.data_ptr() for parameter in learner.target_network.parameters()]
    clock = Clock(100)
    for number in range(4):
        before = [parameter.clone() for parameter in learner.target_network.parameters()]
        learner.update(random_transitions(8), clock)
        clock.updates += 1
        for old, now, online in zip(
            before, learner.target_network.parameters(), learner.q_network.parameters(), strict=True
        ):
            torch.testing.assert_close(now, old + 0.25 * (online - old) if number % 2 else old)
    assert [parameter.data_ptr() for parameter in learner.target_network.parameters()] == memory


def test_update_draws_noise_of_the_learner_for_each_network(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("dqn", "Chain", noisy="factorized", double=True)
    batch = random_transitions(8)
    state = learner.generator.bit_generator.state
    first = q_draws(learner, batch)["noise"]
    assert learner.generator.bit_generator.state != state
    assert first.shape[0] == 3
    assert len(torch.unique(first, dim=0)) == 3
    assert not torch.equal(first, q_draws(learner, batch)["noise"])
    single = q_draws(make_learner("dqn", "Chain", noisy="factorized"), batch)["noise"]
    assert single.shape[0] == 2


@for_each("name", BY_VALUES)
@for_each(
    "options, kind",
    [
        ({}, EpsilonGreedy),
        ({"softmax_temperature": 0.5}, Softmax),
        ({"noisy": "independent", "noisy_sigma": 0.3}, NoisyGreedy),
    ],
)
def test_options_choose_how_to_explore(
    make_learner: Callable[..., Any], name: str, options: dict[str, Any], kind: type
) -> None:
    agent = make_learner(name, "Chain", random_steps=7, eval_eps=0.1, **options).agent()
    assert type(agent) is kind
    assert (agent.warmup, agent.evaluation) == (7, 0.1)
    if kind is Softmax:
        assert agent.temperature(0.3) == options["softmax_temperature"]
    noisy = [layer for layer in agent.network.modules() if isinstance(layer, NoisyLinear)]
    assert len(noisy) == (2 if "noisy" in options else 0)
    for layer in noisy:
        assert layer.kind == "independent"
        assert layer.weight_sigma[0, 0].item() == pytest.approx(0.3)


@pytest.mark.parametrize("name", BY_VALUES)
def test_epsilon_follows_its_points(make_learner: Callable[..., Any], name: str) -> None:
    """The agent's own epsilon; the order of two equal points gives the direction of a jump."""
    bends = {
        "exploration_points": [0.1, 0.5, 0.4, 0.5, 0.4, 0.3],
        "exploration_fraction": 0.6,
        "exploration_final_eps": 0.1,
    }
    others: dict[str, Any] = {"exploration_final_eps_others": []} if name == "nstep-q" else {}
    epsilon = make_learner(name, "Chain", **bends, **others).agent().epsilon
    epsilons = [epsilon(progress) for progress in (0.0, 0.05, 0.1, 0.25, 0.4, 0.4001, 0.5, 0.6, 1.0)]
    assert epsilons == pytest.approx([1.0, 0.75, 0.5, 0.5, 0.5, 0.3, 0.2, 0.1, 0.1], abs=1e-3)


BENDS = {
    "a half": "0.1", "above 1": "0.1,1.5", "below 0": "-1,-2", "a chance below 0": "0.1,-0.5", "at 0": "0,0.5",
    "at the end": "0.6,0.5", "behind the end": "0.1,0.8,0.7,0.5", "not in order": "0.3,0.5,0.2,0.4", "nan": "nan,0.5",
    "a chance of nan": "0.1,nan",
}  # fmt: skip


@for_each("name", ["dqn", "nstep-q"])
@for_each("bends", BENDS.values())
def test_points_outside_of_probabilities_raise(make_learner: Callable[..., Any], name: str, bends: str) -> None:
    """The sentence names the value and the valid range."""
    with pytest.raises(BadConfig) as caught:
        make_learner(name, "Chain", exploration_points=list(map(float, bends.split(","))), exploration_fraction=0.6)
    assert str(caught.value) == (
        f"{name}: exploration_points needs pairs, a share of the run between 0 and exploration_fraction (0.6) "
        f"and the probability there from 0 to 1, in the order of the shares, such as 0.3,0.5; it is {bends}"
    )
    make_learner(name, "Chain", exploration_points=[0.3, 0.5], exploration_fraction=0.6)


@pytest.mark.parametrize("name", BY_VALUES)
def test_two_ways_to_explore_raise(make_learner: Callable[..., Any], name: str) -> None:
    with pytest.raises(BadConfig, match="noisy and softmax_temperature both replace epsilon"):
        make_learner(name, "Chain", noisy="factorized", softmax_temperature=1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["dqn", "per-dqn", "sac"])
def test_missing_store_raises_one_sentence(make_learner: Callable[..., Any], name: str) -> None:
    with pytest.raises(
        UsageError, match=r"buffer_storage 'cuda' is not available to this torch; use --buffer-storage memory or disk"
    ):
        make_learner(name, "Continuous" if name == "sac" else "Chain", buffer_storage="cuda").buffer()


@pytest.mark.parametrize(("name", "env"), [("dqn", "Masked"), ("per-dqn", "Chain"), ("sac", "Continuous")])
def test_store_of_observations_changes_nothing(train_runner: Callable[..., Any], name: str, env: str) -> None:
    options = {
        "learning_starts": 40,
        "batch_size": 16,
        "train_freq": 8,
        "total_timesteps": 400,
        "buffer_size": 200,
        "net.hidden": [16],
    }
    memory, disk = (train_runner(name, env, buffer_storage=store, **options) for store in ("memory", "disk"))
    assert memory.clock.updates == disk.clock.updates > 30
    assert disk.actor.buffer.store == "disk"
    for one, other in zip(memory.snapshot().parameters(), disk.snapshot().parameters(), strict=True):
        assert torch.equal(one, other)


def test_pqn_regresses_on_lambda_returns(make_learner: Callable[..., Any]) -> None:
    """Gallici et al. (2024), section 4, backwards in time; the row after an end has no transition."""
    learner = make_learner("pqn", "Chain", n_steps=24, gamma=0.9, q_lambda=0.6, **{"net.hidden": [8]})
    rollout = rollout_of(learner)
    counts = rollout.weight > 0
    assert rollout.terminated.any()
    assert not rollout.truncated.any()
    with torch.no_grad():
        q = torch.stack([learner.q_network(torch.as_tensor(obs)) for obs in rollout.obs]).numpy()
    returns = np.zeros_like(rollout.reward)
    following = q[-1].max(-1)
    for time in reversed(range(24)):
        returns[time] = rollout.reward[time] + 0.9 * np.where(rollout.terminated[time], 0.0, following)
        following = 0.4 * q[time].max(-1) + 0.6 * returns[time]
    target = learner.lambda_return(rollout, learner.config)
    assert target[counts] == pytest.approx(returns[counts], rel=1e-5)
    loss, _ = learner.loss(rollout.samples(target, target, learner.device))
    taken = np.take_along_axis(q[:-1], rollout.action[..., None], -1)[..., 0]
    assert loss.item() == pytest.approx(np.square(taken - returns)[counts].mean(), rel=1e-5)

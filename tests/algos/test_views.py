"""Actor and critic with their own networks and observations: `net.obs`, `critic_net.*`, one activation per layer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.runs.api import load, resume, train
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.network_text import network_text
from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array, Obs, tree_map
from tests.algos.conftest import plan_of
from tests.algos.test_resume import differences
from tests.tables import for_each

ENV = f"{__file__}:Coin"
BOX = f"{__file__}:BoxCoin"


class Coin(Vector):
    """Episodes of one step. The reward is -3 or 3, as in `state`, and 1 more if the action equals the hint.

    Without `state` the value of every observation is the mean of both coins.
    """

    obs = spaces.Dict({"hint": spaces.Box(-1, 1, (2,), np.float32), "state": spaces.Box(-1, 1, (3,), np.float32)})

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.state |= {name: np.ones(num_envs) for name in ("coin", "hint")}

    def open(self, rows: Array) -> None:
        for name in ("coin", "hint"):
            drawn = self.generator.choice([-1.0, 1.0], self.num_envs)
            self.state[name] = np.where(rows, drawn, self.state[name])

    def observe(self) -> Obs:
        return {
            "hint": np.repeat(self.state["hint"][:, None], 2, 1).astype(np.float32),
            "state": np.repeat(self.state["coin"][:, None], 3, 1).astype(np.float32),
        }

    def right(self, action: Array) -> Array:
        return action == (self.state["hint"] > 0)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        ends = np.ones(self.num_envs, np.bool_)
        return 3 * self.state["coin"] + self.right(action), ends, ~ends


class BoxCoin(Coin):
    action = spaces.Box(-1, 1, (1,), np.float32)

    def right(self, action: Array) -> Array:
        return np.sign(action[:, 0]) == self.state["hint"]


ON_POLICY = ("ppo", "a2c", "trpo", "vpg", "acktr", "impala", "appo")
DISCRETE = (*ON_POLICY, "acer", "sac-discrete", "mappo")
CONTINUOUS = ("sac", "td3", "ddpg", "tqc", "cql", "iql", "crossq", "acer-continuous")
PRIVILEGED = {"net.obs": ["hint"], "critic_net.obs": ["state"], "net.hidden": [8], "critic_net.hidden": [5, 4]}
#: The attributes of learners for actors and for critics.
JUDGES = ("critic", "critics", "q_network", "value")


def build_learner(algorithm: str, options: dict[str, Any]) -> Any:
    plan = plan_of(algorithm, BOX if algorithm in CONTINUOUS else ENV, options)
    return plan.make_learner(plan.make_env(2).spec)


def observations(rows: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {"hint": torch.randn(rows, 2, generator=generator), "state": torch.randn(rows, 3, generator=generator)}


def first_layers(module: torch.nn.Module) -> list[tuple[int, int]]:
    """Return inputs and outputs of all linear layers."""
    return [(one.in_features, one.out_features) for one in module.modules() if isinstance(one, torch.nn.Linear)]


@for_each("algorithm", [*DISCRETE, *CONTINUOUS])
def test_actor_and_critic_have_their_own_layers_and_keys(algorithm: str) -> None:
    learner = build_learner(algorithm, {**PRIVILEGED})
    assert first_layers(learner.policy)[0] == (2, 8)
    judge = next(getattr(learner, name) for name in JUDGES if hasattr(learner, name))
    action = 1 if algorithm in CONTINUOUS and algorithm != "acer-continuous" else 0
    world = 1 if algorithm == "mappo" else 0  # the agent's number
    assert first_layers(judge)[0] == (3 + action + world, 5)
    assert (5, 4) in first_layers(judge)


@for_each("algorithm", DISCRETE[:-1])
def test_gradient_of_values_changes_only_the_critic(algorithm: str) -> None:
    """The policy does not see the critic's key."""
    learner = build_learner(algorithm, PRIVILEGED)
    judge = next(getattr(learner, name) for name in JUDGES if hasattr(learner, name))
    obs = observations(4)
    judge(obs).sum().backward()
    assert all(one.grad is None or not one.grad.any() for one in learner.policy.parameters())
    assert any(one.grad is not None and one.grad.any() for one in judge.parameters())
    changed = {**obs, "state": obs["state"] + 1}
    assert torch.equal(learner.policy(obs), learner.policy(changed))
    assert not torch.equal(judge(obs), judge(changed))


VALUES = ("dqn", "c51", "qrdqn", "iqn", "pqn", "vqn", "vsarsa", "nstep-q", "r2d2")


@for_each("algorithm", [*VALUES, *(f"{name} with a memory" for name in VALUES[:4])])
def test_action_values_read_only_their_keys(algorithm: str) -> None:
    name, _, memory = algorithm.partition(" with ")
    learner = build_learner(
        name, {"net.obs": ["hint"], "net.hidden": [8, 7], **({"memory": "gru:units=5"} if memory else {})}
    )
    assert first_layers(learner.q_network.encoder)[0] == (2, 8)
    agent = learner.agent()
    obs = {key: value.numpy() for key, value in observations(4).items()}
    opens = np.ones(4, np.bool_)
    state = agent.initial(4)
    act = agent.act(obs, opens, state, Clock(1), explore=False)
    changed = agent.act({**obs, "state": obs["state"] + 9}, opens, state, Clock(1), explore=False)
    assert np.array_equal(act.action, changed.action)
    assert len(first_layers(learner.q_network)) > 1


def test_networks_equal_explicit_layers() -> None:
    """With one activation and one method of initial weights per layer."""
    learner = build_learner(
        "ppo",
        {
            "net.obs": ["state", "hint"],
            "net.hidden": [7, 6],
            "net.activation": ["tanh", "relu"],
            "net.init": ["orthogonal", "xavier_uniform"],
            "critic_net.obs": ["hint"],
            "critic_net.activation": ["silu", "tanh"],
        },
    )
    obs = observations(5)
    first, second, last = (one for one in learner.policy.modules() if isinstance(one, torch.nn.Linear))
    values = torch.cat([obs["hint"], obs["state"]], 1)  # in the order of the space
    expected = last(torch.relu(second(torch.tanh(first(values)))))
    torch.testing.assert_close(learner.policy(obs), expected)
    torch.testing.assert_close(first.weight.T @ first.weight, 2 * torch.eye(5))  # orthogonal, gain √2
    assert second.weight.abs().max() <= 2**0.5 * (6 / 13) ** 0.5
    first, second, last = (one for one in learner.critic.modules() if isinstance(one, torch.nn.Linear))
    expected = last(torch.tanh(second(torch.nn.functional.silu(first(obs["hint"])))))
    torch.testing.assert_close(learner.critic(obs), expected.squeeze(-1))
    acted = learner.agent().forward(tree_map(lambda one: one.numpy(), obs))
    torch.testing.assert_close(torch.from_numpy(acted), learner.policy(obs).detach(), rtol=1e-5, atol=1e-6)


@for_each("algorithm", ["dqn", "dueling-dqn", "c51"])
def test_values_act_with_an_activation_per_layer(algorithm: str, make_learner: Callable[..., Any]) -> None:
    """The last hidden layer is in the streams, which acting computes in one pass."""
    net = {"net.hidden": [9, 8], "net.activation": ["tanh", "relu"], "net.init": ["xavier_uniform", "orthogonal"]}
    learner = make_learner(algorithm, "Chain", **net)
    obs = torch.randn(3, *learner.spec.obs.shape, generator=torch.Generator().manual_seed(0))
    network = learner.q_network
    hidden = torch.tanh(network.encoder.linears[0](obs))
    assert torch.equal(network.encoder(obs), hidden)
    stream = network.advantage
    outputs = stream.linears[1](torch.relu(stream.linears[0](hidden)))
    torch.testing.assert_close(stream(hidden), outputs)
    acted = torch.from_numpy(np.asarray(learner.agent().forward(obs.numpy())))
    torch.testing.assert_close(acted, network(obs).detach(), rtol=1e-5, atol=1e-6)


def test_each_network_normalizes_its_keys(train_runner: Callable[..., Any]) -> None:
    """Both with the moments of their own keys; one of them may skip normalization."""
    options = {**PRIVILEGED, "net.normalize_obs": True, "n_steps": 16, "batch_size": 32, "total_timesteps": 256}
    learner = train_runner("ppo", ENV, **options).learner
    policy = learner.policy.encoder.encoder
    critic = learner.critic.encoder.encoder
    assert policy.norm.norm.mean.shape == (2,)
    assert critic.norm.norm.mean.shape == (3,)
    assert policy.norm.norm.count == critic.norm.norm.count > 0
    assert len(learner.running) == 2
    plain = train_runner("ppo", ENV, **options, **{"critic_net.normalize_obs": False}).learner
    assert len(plain.running) == 1


@for_each(
    "algorithm, options, message",
    [
        ("ppo", {"net.obs": ["hand"]}, r"has 'hand', which is not a key of the observations; the keys are 'hint' and"),
        ("sac", {"critic_net.obs": ["hints"]}, r"has 'hints', .* the keys are 'hint' and 'state'$"),
        ("ppo", {"net.shared": True, "critic_net.hidden": [3]}, r"one trunk, and critic_net.hidden needs"),
        ("ppo", {"memory": "gru", "critic_net.hidden": [3]}, r"its own observations with critic_net.obs"),
        ("ppo", {"critic_net.activation": ["tanh"]}, r"^critic_net: activation has a list of 1 for 2 hidden layers"),
        ("dqn", {"net.obs": ["state", "x"]}, r"has 'x'"),
    ],
)
def test_conflicting_options_raise(algorithm: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_learner(algorithm, options)


def test_keys_of_plain_observations_raise(make_learner: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"choose keys of Dict observations, and these are Box.* leave them out"):
        make_learner("ppo", "Continuous", **{"net.obs": ["state"]})


SHORT = {
    "ppo": {"n_steps": 16, "batch_size": 32, "num_envs": 4, "learning_rate": 3e-3, "anneal_lr": False},
    "a2c": {"n_steps": 16, "num_envs": 4, "learning_rate": 3e-3, "anneal_lr": False},
    "trpo": {"n_steps": 64, "num_envs": 4},
    "impala": {"n_steps": 16, "num_envs": 4, "learning_rate": 3e-3, "runner": "sync"},
}


def value_errors(learner: Any) -> float:
    """Return the mean squared error of the critic for a policy that takes each action of Coin half of the time."""
    coin = torch.tensor([-1.0, 1.0]).repeat(2)
    hint = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    obs = {"hint": hint[:, None].repeat(1, 2), "state": coin[:, None].repeat(1, 3)}
    with torch.no_grad():
        right = learner.policy.head.log_prob(learner.policy(obs), (hint > 0).long()).exp()
        error = (learner.critic(obs) - (3 * coin + right)).square().mean()
    return float(error)


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name in ("ppo", "impala") else pytest.mark.slow) for name in SHORT]
)
def test_value_that_needs_the_privileged_key_is_learned(train_runner: Callable[..., Any], algorithm: str) -> None:
    options = {**SHORT[algorithm], **PRIVILEGED, "critic_net.hidden": [16], "total_timesteps": 6400}
    assert value_errors(train_runner(algorithm, ENV, **options).learner) < 0.5
    if algorithm == "ppo":  # the variance of the coin is 9
        blind = {**options, "critic_net.obs": ["hint"]}
        assert value_errors(train_runner(algorithm, ENV, **blind).learner) > 8


def test_policy_with_a_memory_has_a_critic_without_one(train_runner: Callable[..., Any]) -> None:
    options = {**SHORT["ppo"], **PRIVILEGED, "critic_net.hidden": [16], "memory": "gru:units=8"}
    learner = train_runner("ppo", ENV, **options, total_timesteps=3200).learner
    assert first_layers(learner.critic)[0] == (3, 16)
    coin = torch.tensor([[-1.0], [1.0]]).repeat(1, 3)
    values = learner.critic({"hint": torch.zeros(2, 2), "state": coin}).detach()
    torch.testing.assert_close(values, torch.tensor([-2.3, 3.7]), atol=0.8, rtol=0)


def final_learner(path: Path) -> Any:
    _, components, _, _ = Checkpoints(path / "checkpoints").load(("final",))
    return components["learner"]


def test_run_resumes_exactly_and_exports_only_the_actors_keys(tmp_path: Path) -> None:
    options = {**SHORT["ppo"], **PRIVILEGED, "net.normalize_obs": True, "final_eval_episodes": 2}
    whole = train("ppo", ENV, options | {"total_timesteps": 512}, out=tmp_path, name="whole", hooks=False)
    half = train("ppo", ENV, options | {"total_timesteps": 256}, out=tmp_path, name="half", hooks=False)
    half = resume(half, total_timesteps=512, hooks=False)
    assert differences(final_learner(whole.path), final_learner(half.path)) == []
    policy = load(whole.export(tmp_path / "policy"))
    assert list(policy.observation_space.spaces) == ["hint"]
    obs = {"hint": np.array([[-1, -1], [1, 1], [0.3, -2]], np.float32)}
    from_run = load(whole, checkpoint="final")
    assert np.array_equal(policy(obs), from_run({**obs, "state": np.zeros((3, 3), np.float32)}))
    assert network_text(build_learner("ppo", PRIVILEGED)).splitlines() == [
        "network      policy  42 parameters  obs hint · Linear 2→8 · Linear 8→2",
        "             critic  49 parameters  obs state · Linear 3→5 · Linear 5→4 ·",
        "                                    Linear 4→1",
    ]


def test_network_summary_has_one_row_per_part_and_repeated_member() -> None:
    class Learner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.world = nn.Module()
            self.world.encoder = nn.Sequential(nn.Linear(3, 64), nn.LayerNorm(64), nn.Linear(64, 8))
            self.world.critics = nn.ModuleList([nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 1)) for _ in range(2)])

    learner: Any = Learner()
    assert network_text(learner).splitlines() == [
        "network      world.encoder    904 parameters  Linear 3→64 · LayerNorm 64 ·",
        "                                              Linear 64→8",
        "             world.critics  1,282 parameters  2 x (Linear 8→64 · Linear 64→1)",
    ]

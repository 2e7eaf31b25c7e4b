"""The forward pass in NumPy equals torch's, follows changes of parameters, and is used only for supported layers."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.errors import UsageError
from rlplug_core.fast.forward import NumpyForward
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import Adam
from rlplug_core.nets.distributional import CategoricalQ, ImplicitQ, QuantileQ
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.forward import TorchForward, fast_forward
from rlplug_core.nets.heads import Categorical, ParallelHeads
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Spec
from tests.core.fakes import ENVS, TINY, make_runner
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("loops")

DISCRETE = spaces.Discrete(3)
BOX = spaces.Box(-1, 1, (2,), np.float32)
DIALS = spaces.MultiDiscrete([3, 2])
SWITCHES = spaces.MultiBinary(2)
ACTIONS = [DISCRETE, BOX, DIALS, SWITCHES, spaces.Dict({"a": BOX, "b": spaces.Dict({"c": DIALS, "d": SWITCHES})})]
PARTS = {"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Box(-1, 1, (2, 2), np.float32)}
OBSERVATIONS = {
    "vector": spaces.Box(-1, 1, (4,), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float64),
    "bits": spaces.MultiBinary(5),
    "numbers": spaces.MultiDiscrete([3, 4], start=[5, -1]),
    "scalar": spaces.Box(-1, 1, (), np.float32),
    "bytes": spaces.Box(0, 255, (3, 5), np.uint8),
    "discrete": spaces.Discrete(5, start=2),
    "image": spaces.Box(0, 255, (1, 10, 10), np.uint8),
    "image-last": spaces.Box(0, 255, (40, 40, 3), np.uint8),
    "dict": spaces.Dict(PARTS),
    "dict-in-dict": spaces.Dict({"x": spaces.Dict(PARTS), "y": spaces.Discrete(3)}),
    "dict-image": spaces.Dict({"see": spaces.Box(0, 255, (1, 10, 10), np.uint8), **PARTS}),
    "dict-one": spaces.Dict({"only": spaces.Box(-1, 1, (4,), np.float32)}),
    "masked": spaces.Dict({"obs": spaces.Box(-1, 1, (4,), np.float32), "action_mask": spaces.MultiBinary(3)}),
}


def build(kind: str, obs: spaces.Space[Any], net: Net, action: spaces.Space[Any] = DISCRETE) -> nn.Module:
    spec = Spec(obs, action, 1, "here")
    if kind == "policy":
        return PolicyNetwork(spec, net)
    if kind == "critic":
        return Critic(spec, net)
    dueling = "dueling" in kind
    noisy = "factorized" if "noisy" in kind else None
    if "categorical" in kind:
        return CategoricalQ(spec, net, -2.0, 3.0, 7, dueling, noisy)
    if "quantile" in kind:
        return QuantileQ(spec, net, dueling, noisy, atoms=5)
    return ImplicitQ(spec, net, 4, dueling, noisy) if "implicit" in kind else QNetwork(spec, net, dueling, noisy)


def batch(space: spaces.Space[Any], num_envs: int) -> Any:
    """Sample a batch of a space."""
    if isinstance(space, spaces.Dict):
        return {name: batch(part, num_envs) for name, part in space.spaces.items()}
    return np.stack([np.asarray(space.sample()) for _ in range(num_envs)])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["policy", "critic", "q", "dueling", "categorical", "dueling categorical", "noisy quantile"]),
    st.sampled_from(ACTIONS),
    st.lists(st.integers(1, 40), max_size=3),
    st.sampled_from(["tanh", "relu", "elu", "silu", "leaky_relu"]),
    st.sampled_from(["free", "state"]),
    st.integers(1, 9),
    st.integers(1, 70),
)
def test_numpy_forward_equals_torch(
    kind: str, action: Any, hidden: list[int], activation: Any, std: Any, width: int, num_envs: int
) -> None:
    torch.manual_seed(width)
    action = action if kind == "policy" else DISCRETE
    std = std if kind == "policy" and "Box" in str(action) else "free"  # only a Gaussian has a deviation
    module = build(kind, spaces.Box(-1, 1, (width,), np.float32), Net(tuple(hidden), activation, std=std), action)
    for parameter in module.parameters():  # initial biases and deviations of 0 would hide errors
        nn.init.normal_(parameter, std=0.5)
    plain = fast_forward(module)
    assert isinstance(plain, NumpyForward)
    obs = np.random.default_rng(num_envs).normal(size=(num_envs, width)).astype(np.float32)
    copy = obs.copy()
    ours = plain(obs)
    theirs = TorchForward(module)(obs)
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(obs, copy)
    np.testing.assert_array_equal(plain(obs), ours)
    assert not np.shares_memory(plain(obs), ours)


@pytest.mark.parametrize(
    "kind",
    ["policy", "critic", "q", "noisy dueling", "categorical", "dueling quantile", "dueling implicit"],
)
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_fast_forward_equals_torch_for_every_observation(kind: str, name: str) -> None:
    torch.manual_seed(0)
    module = build(kind, OBSERVATIONS[name], Net(hidden=(8,)))
    OBSERVATIONS[name].seed(0)
    obs = batch(OBSERVATIONS[name], 3)
    ours, theirs = fast_forward(module)(obs), TorchForward(module)(obs)
    assert ours.shape == ((3,) if kind == "critic" else (3, 3))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["elu", "silu", "leaky_relu"])
def test_activations_do_not_overflow(activation: Any) -> None:
    module = build("critic", OBSERVATIONS["vector"], Net((6,), activation))
    obs = np.float32([[1e30] * 4, [-1e30] * 4, [1000] * 4, [-1000] * 4])
    np.testing.assert_allclose(fast_forward(module)(obs), TorchForward(module)(obs), rtol=1e-4)


@for_each("name, net, backend", [
    *((name, Net(), "numpy") for name in ("vector", "matrix", "bits", "scalar", "numbers", "discrete", "bytes")),
    *((name, Net(), "torch") for name in ("image", "dict", "masked")),
    *(("vector", net, "torch") for net in (Net(activation="gelu"), Net(layer_norm=True))),
])  # fmt: skip
def test_auto_uses_numpy_for_supported_layers(name: str, net: Net, backend: str) -> None:
    for kind in ("policy", "critic", "q", "dueling categorical"):
        module = build(kind, OBSERVATIONS[name], net)
        assert fast_forward(module).backend == backend
        assert fast_forward(module, "torch").backend == "torch"
        if backend == "numpy":
            assert fast_forward(module, "numpy").backend == "numpy"
        else:
            with pytest.raises(UsageError, match="NumPy computes only fully connected layers on the CPU"):
                fast_forward(module, "numpy")


class Residual(nn.Module):
    """Dense layers with a sum around them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs + self.second(torch.tanh(self.first(obs)))


def test_fast_forward_uses_the_forward_of_a_module() -> None:
    spec = Spec(OBSERVATIONS["vector"], DISCRETE, 1, "here")
    policy = PolicyNetwork(spec, Net(), trunk=(Residual(), 4))

    class Doubled(PolicyNetwork):
        def forward(self, obs: Any) -> torch.Tensor:
            return 2 * super().forward(obs)

    obs = batch(OBSERVATIONS["vector"], 3)
    for module in (policy, Doubled(spec, Net())):
        np.testing.assert_allclose(fast_forward(module)(obs), TorchForward(module)(obs), rtol=1e-4, atol=1e-5)


class Temperature(nn.Linear):
    """A subclass of `nn.Linear` with another forward."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(features)


@pytest.mark.parametrize(
    ("layer", "backend"),
    [
        (Temperature(8, 3), "torch"),
        (ParallelHeads([nn.Linear(8, 1), Temperature(8, 2)]), "torch"),
        (nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)), "numpy"),
        (ParallelHeads([nn.Linear(8, 1), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))]), "numpy"),
    ],
)
def test_head_can_have_any_layers(layer: nn.Module, backend: str) -> None:
    """NumPy computes layers that can be recorded, and torch the others."""
    spec = Spec(OBSERVATIONS["vector"], DISCRETE, 1, "here")
    obs = batch(OBSERVATIONS["vector"], 3)
    policy = PolicyNetwork(spec, Net((8,)), make=lambda space, features: (Categorical(3), layer))
    assert fast_forward(policy).backend == backend
    np.testing.assert_allclose(fast_forward(policy)(obs), TorchForward(policy)(obs), rtol=1e-4, atol=1e-5)


def test_policy_and_critic_can_share_a_trunk() -> None:
    spec = Spec(OBSERVATIONS["vector"], DISCRETE, 1, "here")
    trunk = encoder(spec.obs, Net(hidden=(8,)))
    policy = PolicyNetwork(spec, Net(), trunk)
    critic = Critic(spec, Net(), trunk)
    optimizer = Optimizer(
        [*policy.parameters(), *critic.parameters()], name="network", rule=Adam(), learning_rate=constant(0.1)
    )
    obs = batch(spec.obs, 3)
    forwards = ((fast_forward(policy), policy), (fast_forward(critic), critic))
    for _ in range(3):
        optimizer.minimize(critic(torch.from_numpy(obs)).sum(), Clock(1))
        for plain, module in forwards:
            np.testing.assert_allclose(plain(obs), TorchForward(module)(obs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("runner", [{}, {"runner": "async", "inline": True, "workers": 2}])
@pytest.mark.parametrize("env", ["Chain", "Continuous"])
def test_agents_use_the_current_weights(runner: dict[str, Any], env: str) -> None:
    """After each update, load and pull, agents and learners have the same weights."""
    loop = make_runner(TINY, f"{ENVS}:{env}", **{"runner": "sync", **runner})
    actors = [loop.actor] if loop.name == "sync" else [worker.actor for worker in loop.workers]

    def check() -> None:
        for actor in actors:
            agent, learner = actor.agent, actor.learner
            assert isinstance(agent.forward, NumpyForward)
            assert isinstance(learner.values, NumpyForward)
            for plain, module in ((agent.forward, learner.policy), (learner.values, learner.critic)):
                expected = TorchForward(module)(actor.obs)
                np.testing.assert_allclose(plain(actor.obs), expected, rtol=1e-4, atol=1e-5)

    loop.run(check)
    state = loop.state_dict()
    for actor in actors:
        for parameter in actor.learner.parameters():
            with torch.no_grad():
                parameter.fill_(0.1)
    check()
    loop.load_state_dict(state)
    check()

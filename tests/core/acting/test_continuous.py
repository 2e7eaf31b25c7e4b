"""Agents for continuous actions: exploration, saved state, and actions without exploration."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.acting.continuous import GaussianNoise, NoiseAgent, OrnsteinUhlenbeck, SampleAgent
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import linear
from rlplug_core.nets.continuous import ActionCritic, ActionCritics, DeterministicPolicy
from rlplug_core.nets.heads import squashed
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Spec

BOX = spaces.Box(-1, 1, (2, 1), np.float32)
SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), BOX, 4, "here")
OBS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
FIRST = np.zeros(4, bool)


def make(kind: str, warmup: int = 0) -> Any:
    torch.manual_seed(0)
    if kind == "sample":
        agent: Any = SampleAgent(PolicyNetwork(SPEC, Net(), make=squashed), Seeds(1), warmup=warmup)
    else:
        added = GaussianNoise(0.3) if kind == "gaussian" else OrnsteinUhlenbeck(0.3)
        agent = NoiseAgent(DeterministicPolicy(SPEC, Net()), added, Seeds(1), warmup=warmup)
    agent.initial(4)
    return agent


def actions(agent: Any, count: int, steps: int = 10, explore: bool = True) -> Array:
    """[count, 4, 2, 1]"""
    clock = Clock(1000, steps)
    return np.stack([agent.act(OBS, FIRST, None, clock, explore).action for _ in range(count)])


KINDS = pytest.mark.parametrize("kind", ["sample", "gaussian", "ornstein-uhlenbeck"])


@KINDS
def test_first_actions_are_uniform_within_bounds(kind: str) -> None:
    """For `warmup` env steps; later actions have another distribution."""
    random = actions(make(kind, 10), 3000, steps=9)
    own = actions(make(kind, 10), 3000, steps=10)
    assert random.shape == own.shape == (3000, 4, 2, 1)
    assert random.dtype == own.dtype == np.float32
    assert np.abs(random).max() <= 1
    assert np.abs(own).max() <= 1
    shares, _ = np.histogram(random, bins=10, range=(-1, 1))
    assert (np.abs(shares - 2400) < 5 * np.sqrt(2400)).all()
    assert not np.allclose(np.histogram(own, bins=10, range=(-1, 1))[0], shares, rtol=0.1)


@KINDS
def test_agent_without_exploration_draws_no_numbers(kind: str) -> None:
    agent = make(kind, 10)
    policy = make(kind).network
    with torch.no_grad():
        outputs = policy(torch.from_numpy(OBS))
    wanted = outputs.numpy() if kind != "sample" else outputs[:, :2].tanh().numpy()
    found = actions(agent, 5, steps=0, explore=False)
    np.testing.assert_allclose(found, np.broadcast_to(wanted.reshape(4, 2, 1), found.shape), atol=1e-6)
    np.testing.assert_array_equal(actions(agent, 5), actions(make(kind, 10), 5))


@KINDS
def test_agent_resumes_exactly(kind: str) -> None:
    """Also within a block of random numbers, and with correlated noise."""
    agent, resumed = make(kind), make(kind)
    actions(agent, 300)
    resumed.load_state_dict(agent.state_dict())
    np.testing.assert_array_equal(actions(agent, 300), actions(resumed, 300))


def test_gaussian_noise_has_its_deviation() -> None:
    drawn = GaussianNoise(0.3)(np.random.default_rng(0).standard_normal((20_000, 2), dtype=np.float32), FIRST, 0.0)
    assert drawn.std() == pytest.approx(0.3, rel=0.02)


def test_ornstein_uhlenbeck_noise_follows_the_equation() -> None:
    """An episode starts at 0; the deviation approaches sigma / sqrt(1 - (1 - theta)²)."""
    noise = OrnsteinUhlenbeck(0.2, 0.15)
    random = np.random.default_rng(0)
    x = np.zeros((3, 2))
    for step in range(50):
        gaussian = random.standard_normal((3, 2), dtype=np.float32)
        first = np.array([step == 20, False, step % 7 == 0])
        for row in range(3):
            x[row] = (0 if first[row] else x[row] * 0.85) + 0.2 * gaussian[row]
        np.testing.assert_allclose(noise(gaussian, first, 0.0), x, rtol=1e-4, atol=1e-5)
    never = np.zeros(3, bool)
    long = np.stack([noise(random.standard_normal((3, 2), dtype=np.float32), never, 1.0) for _ in range(20_000)])
    assert long[100:].std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), rel=0.05)
    assert np.corrcoef(long[100:-1, 0, 0], long[101:, 0, 0])[0, 1] == pytest.approx(0.85, abs=0.02)


def test_noise_follows_progress() -> None:
    """An agent gets the progress from the clock."""
    ones = np.ones((1, 1), np.float32)
    never = np.zeros(1, bool)
    gaussian = GaussianNoise(linear(1, 0))
    walk = OrnsteinUhlenbeck(linear(1, 0), linear(0.5, 1))
    assert [gaussian(ones, never, progress).item() for progress in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]
    assert [walk(ones, never, progress).item() for progress in (0.0, 0.5, 1.0)] == [1.0, 0.25 * 1.0 + 0.5, 0.0]
    agent = NoiseAgent(DeterministicPolicy(SPEC, Net()), GaussianNoise(linear(0.3, 0)), Seeds(1))
    agent.initial(4)
    assert np.ptp(actions(agent, 10, steps=900), 0).max() < 0.3 < np.ptp(actions(agent, 10, steps=0), 0).max()
    assert not np.ptp(actions(agent, 10, steps=1000), 0).any()


OBSERVATIONS = {
    "vector": spaces.Box(-1, 1, (3,), np.float32),
    "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "number": spaces.Discrete(4),
    "image": spaces.Box(0, 255, (1, 10, 10), np.uint8),
    "dict": spaces.Dict({"see": spaces.Box(0, 255, (1, 10, 10), np.uint8), "feel": spaces.Box(-1, 1, (3,))}),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_action_critics_accept_every_observation(name: str) -> None:
    """Two critics have different weights, and values with a gradient in the action."""
    torch.manual_seed(0)
    space = OBSERVATIONS[name]
    spec = Spec(space, BOX, 1, "here")
    critics = ActionCritics(lambda: ActionCritic(spec, Net()), 2)
    policy = DeterministicPolicy(spec, Net())
    space.seed(0)
    obs = sample_batch(space, 5)
    values = critics(obs, policy(obs))
    assert values.shape == (2, 5)
    assert (values[0] != values[1]).all()
    for number in range(2):  # each critic of images has its own convolutions
        assert torch.equal(values[number], critics[number](obs, policy(obs)))
    (gradient,) = torch.autograd.grad(values.sum(), policy.outputs.weight)
    assert gradient.abs().max() > 0
    assert ActionCritic(spec, Net(), atoms=7)(obs, policy(obs)).shape == (5, 7)


def sample_batch(space: spaces.Space[Any], num_envs: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: sample_batch(part, num_envs) for name, part in space.spaces.items()}
    return torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(num_envs)]))


def test_gaussian_noise_can_differ_between_rows() -> None:
    noise = GaussianNoise(linear(0.1, 0.3), 0.9)
    ones = np.ones((5, 2), np.float32)
    np.testing.assert_allclose(noise(ones, FIRST, 0.0)[:, 1], [0.1, 0.3, 0.5, 0.7, 0.9], rtol=1e-6)
    np.testing.assert_allclose(noise(ones, FIRST, 1.0)[:, 0], [0.3, 0.45, 0.6, 0.75, 0.9], rtol=1e-6)
    np.testing.assert_allclose(noise(ones[:1], FIRST, 0.0), [[0.1, 0.1]], rtol=1e-6)

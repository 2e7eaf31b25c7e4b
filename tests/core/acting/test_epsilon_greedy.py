"""Exploration with action values: epsilon, softmax, noisy weights and random first steps."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.acting.epsilon_greedy import EpsilonGreedy, NoisyGreedy, Softmax
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant, linear
from rlplug_core.nets.heads import ILLEGAL
from rlplug_core.nets.net import Net
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.runs.policy import Policy
from rlplug_core.seeds import Seeds
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Spec

ROWS = 3000
SPEC = Spec(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3), ROWS, "Any-v0")
MASKED = spaces.Dict({"obs": SPEC.obs, "action_mask": spaces.MultiBinary(3)})
FIRST = np.zeros(ROWS, np.bool_)


def network(values: list[float], obs: spaces.Space[Any] = SPEC.obs) -> QNetwork:
    """Make a network with the same action values for all observations."""
    q_network = QNetwork(Spec(obs, SPEC.action, 1, "Any-v0"), Net(hidden=()))
    layer: Any = q_network.advantage.linears[0]
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor(values))
    return q_network


def frequencies(agent: EpsilonGreedy, obs: Any = None, clock: Clock | None = None, explore: bool = True) -> list[float]:
    """Return the frequency of each action in many rows."""
    agent.initial(ROWS)
    obs = np.zeros((ROWS, 2), np.float32) if obs is None else obs
    action = agent.act(obs, FIRST, None, clock or Clock(100), explore).action
    return [float((action == choice).mean()) for choice in range(3)]


def test_softmax_samples_from_the_softmax() -> None:
    agent = Softmax(network([0.0, 1.0, 2.0]), 0.5, Seeds(1))
    expected = torch.softmax(torch.tensor([0.0, 2.0, 4.0]), 0).tolist()
    assert frequencies(agent) == pytest.approx(expected, abs=0.03)
    assert frequencies(agent, explore=False) == [0, 0, 1]


def test_softmax_with_temperature_0_is_greedy() -> None:
    agent = Softmax(network([0.0, 1.0, 2.0]), linear(0.5, 0.0), Seeds(1))
    expected = torch.softmax(torch.tensor([0.0, 4.0, 8.0]), 0).tolist()
    assert frequencies(agent, clock=Clock(100, 50)) == pytest.approx(expected, abs=0.03)
    assert frequencies(agent, clock=Clock(100, 100)) == [0, 0, 1]


@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e9, 1e30])
def test_softmax_of_any_temperature_respects_masks(temperature: float) -> None:
    agent = Softmax(network([3.0, 2.0, 50.0], MASKED), temperature, Seeds(1))
    mask = np.tile(np.array([1, 1, 0], np.int8), (ROWS, 1))
    found = frequencies(agent, {"obs": np.zeros((ROWS, 2), np.float32), "action_mask": mask})
    assert found[2] == 0
    if temperature > 1e8:
        assert found[:2] == pytest.approx([0.5, 0.5], abs=0.03)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_expected_value_is_the_mean_over_samples(epsilon: float, temperature: float | None) -> None:
    """The values differ from those that determine the actions."""
    by = [0.0, 1.0, 0.5]
    values = [4.0, -2.0, 9.0]
    net = network([0.0, 1.0, 0.5])
    agent = EpsilonGreedy(net, constant(epsilon), Seeds(1))
    probabilities = [float(value == 1.0) for value in by]
    if temperature:
        agent = Softmax(net, temperature, Seeds(1))
        epsilon = 0.0
        probabilities = torch.softmax(torch.tensor(by) / temperature, 0).tolist()
    wanted = sum((epsilon / 3 + (1 - epsilon) * p) * value for p, value in zip(probabilities, values, strict=True))
    expected = agent.expected(np.array([values] * 2, np.float32), np.array([by] * 2, np.float32), Clock(100))
    assert expected == pytest.approx([wanted] * 2)
    assert np.dot(frequencies(agent), values) == pytest.approx(wanted, abs=0.4)


@pytest.mark.parametrize(("temperature", "wanted"), [(None, [0.5 * 2 + 0.5 * 3, 5]), (1e6, [2, 5])])
def test_expected_value_ignores_illegal_actions(temperature: float | None, wanted: list[float]) -> None:
    values = np.array([[1.0, ILLEGAL, 3.0], [ILLEGAL, ILLEGAL, 5.0]], np.float32)
    net = network([0.0] * 3)
    agent = Softmax(net, temperature, Seeds(1)) if temperature else EpsilonGreedy(net, constant(0.5), Seeds(1))
    assert agent.expected(values, values, Clock(100)) == pytest.approx(wanted, abs=1e-3)


def test_expected_value_of_random_steps_is_the_mean() -> None:
    agent = Softmax(network([0.0] * 3), 0.5, Seeds(1), warmup=50)
    values = np.array([[1.0, 2.0, 6.0]], np.float32)
    assert agent.expected(values, values, Clock(100, 49)) == pytest.approx([3.0])
    assert agent.expected(values, values, Clock(100, 50)) > 5.5


def test_first_steps_are_random() -> None:
    agent = EpsilonGreedy(network([0.0, 1.0, 2.0]), constant(0.0), Seeds(1), warmup=50)
    assert frequencies(agent, clock=Clock(100, 49)) == pytest.approx([1 / 3] * 3, abs=0.03)
    assert frequencies(agent, clock=Clock(100, 50)) == [0, 0, 1]
    assert frequencies(agent, clock=Clock(100, 0), explore=False) == [0, 0, 1]


def test_evaluation_has_its_own_epsilon() -> None:
    agent = EpsilonGreedy(network([0.0, 1.0, 2.0]), constant(0.9), Seeds(1), warmup=50, evaluation=0.3)
    assert frequencies(agent, explore=False) == pytest.approx([0.1, 0.1, 0.8], abs=0.03)


def test_policy_draws_independent_numbers_for_rows_and_calls() -> None:
    env = Chain(1)
    agent = EpsilonGreedy(QNetwork(env.spec, Net(hidden=())), constant(0.0), Seeds(1), evaluation=0.5)
    policy = Policy(agent, env)
    obs = np.zeros((ROWS, 5), np.float32)
    best = agent.forward(obs[:1]).argmax()
    first, second = policy(obs) == best, policy(obs) == best
    single = np.array([policy(obs[0]) for _ in range(ROWS)]) == best
    for found in (first, second, single):
        assert found.mean() == pytest.approx(0.75, abs=0.03)
    for pair in ((first, second), (first, single), (second, single)):
        assert np.mean(np.logical_and(*pair)) == pytest.approx(0.75**2, abs=0.03)


def noisy_agent(**options: Any) -> NoisyGreedy:
    torch.manual_seed(0)
    q_network = QNetwork(SPEC, Net(hidden=(8,)), noisy="factorized", sigma=3.0)
    return NoisyGreedy(q_network, q_network.draw, Seeds(1), **options)


def actions(agent: NoisyGreedy, steps: int, explore: bool = True) -> list[list[int]]:
    """Return actions at random observations, which are the same in each call."""
    observations = np.random.default_rng(0).normal(size=(steps, 6, 2)).astype(np.float32)
    return [agent.act(obs, FIRST[:6], None, Clock(100), explore).action.tolist() for obs in observations]


def test_noise_changes_actions_only_in_exploration() -> None:
    """Each step draws new noise. Without exploration the means act, and no number is drawn."""
    agent = noisy_agent()
    agent.initial(6)
    unused = agent.state_dict()["generator"]
    greedy = actions(agent, 40, explore=False)
    assert agent.state_dict()["generator"] == unused
    assert actions(agent, 40, explore=False) == greedy
    explored = actions(agent, 40)
    assert agent.state_dict()["generator"] != unused
    assert explored != greedy
    assert actions(agent, 40) != explored
    obs = np.ones((6, 2), np.float32)
    same_obs = [agent.act(obs, FIRST[:6], None, Clock(100)).action.tolist() for _ in range(40)]
    assert all(len(set(row)) == 1 for row in same_obs)  # one draw for all rows
    assert len({row[0] for row in same_obs}) > 1


def test_noise_resumes_exactly_and_restarts_with_initial() -> None:
    agent, resumed = noisy_agent(), noisy_agent()
    agent.initial(6)
    first = actions(agent, 20)
    state = agent.state_dict()
    second = actions(agent, 20)
    resumed.initial(6)
    resumed.load_state_dict(state)
    assert actions(resumed, 20) == second
    resumed.initial(6)
    assert actions(resumed, 20) == first

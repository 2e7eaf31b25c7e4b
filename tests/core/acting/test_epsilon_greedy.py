"""How agents explore by action values: epsilon, softmax, noise on the weights, and random steps at the beginning."""

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
    """One that gives the same action values for whatever it sees."""
    made = QNetwork(Spec(obs, SPEC.action, 1, "Any-v0"), Net(hidden=()))
    layer: Any = made.advantage.linears[0]
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor(values))
    return made


def shares(agent: EpsilonGreedy, obs: Any = None, clock: Clock | None = None, explore: bool = True) -> list[float]:
    """How often each action is taken in many rows."""
    agent.initial(ROWS)
    obs = np.zeros((ROWS, 2), np.float32) if obs is None else obs
    action = agent.act(obs, FIRST, None, clock or Clock(100), explore).action
    return [float((action == one).mean()) for one in range(3)]


def test_softmax_takes_actions_by_their_exponentials() -> None:
    agent = Softmax(network([0.0, 1.0, 2.0]), 0.5, Seeds(1))
    expected = torch.softmax(torch.tensor([0.0, 2.0, 4.0]), 0).tolist()
    assert shares(agent) == pytest.approx(expected, abs=0.03)
    assert shares(agent, explore=False) == [0, 0, 1]


def test_a_temperature_that_falls_to_0_ends_greedy() -> None:
    agent = Softmax(network([0.0, 1.0, 2.0]), linear(0.5, 0.0), Seeds(1))
    half = torch.softmax(torch.tensor([0.0, 4.0, 8.0]), 0).tolist()
    assert shares(agent, clock=Clock(100, 50)) == pytest.approx(half, abs=0.03)
    assert shares(agent, clock=Clock(100, 100)) == [0, 0, 1]


@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e9, 1e30])
def test_softmax_of_any_temperature_takes_no_forbidden_action(temperature: float) -> None:
    agent = Softmax(network([3.0, 2.0, 50.0], MASKED), temperature, Seeds(1))
    mask = np.tile(np.array([1, 1, 0], np.int8), (ROWS, 1))
    found = shares(agent, {"obs": np.zeros((ROWS, 2), np.float32), "action_mask": mask})
    assert found[2] == 0
    if temperature > 1e8:
        assert found[:2] == pytest.approx([0.5, 0.5], abs=0.03)


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_expectations_are_means_over_samples(chance: float, temperature: float | None) -> None:
    """Of other values than those it acts by: over many rows, and action by action."""
    by, values, net = [0.0, 1.0, 0.5], [4.0, -2.0, 9.0], network([0.0, 1.0, 0.5])
    agent = EpsilonGreedy(net, constant(chance), Seeds(1))
    chances = [float(one == 1.0) for one in by]
    if temperature:
        agent, chance = Softmax(net, temperature, Seeds(1)), 0.0
        chances = torch.softmax(torch.tensor(by) / temperature, 0).tolist()
    wanted = sum((chance / 3 + (1 - chance) * own) * value for own, value in zip(chances, values, strict=True))
    expected = agent.expected(np.array([values] * 2, np.float32), np.array([by] * 2, np.float32), Clock(100))
    assert expected == pytest.approx([wanted] * 2)
    assert np.dot(shares(agent), values) == pytest.approx(wanted, abs=0.4)


@pytest.mark.parametrize(("temperature", "wanted"), [(None, [0.5 * 2 + 0.5 * 3, 5]), (1e6, [2, 5])])
def test_forbidden_actions_are_not_expected(temperature: float | None, wanted: list[float]) -> None:
    values, net = np.array([[1.0, ILLEGAL, 3.0], [ILLEGAL, ILLEGAL, 5.0]], np.float32), network([0.0] * 3)
    agent = Softmax(net, temperature, Seeds(1)) if temperature else EpsilonGreedy(net, constant(0.5), Seeds(1))
    assert agent.expected(values, values, Clock(100)) == pytest.approx(wanted, abs=1e-3)


def test_random_steps_are_expected_to_be_random() -> None:
    agent, values = Softmax(network([0.0] * 3), 0.5, Seeds(1), warmup=50), np.array([[1.0, 2.0, 6.0]], np.float32)
    assert agent.expected(values, values, Clock(100, 49)) == pytest.approx([3.0])
    assert agent.expected(values, values, Clock(100, 50)) > 5.5


def test_the_first_steps_are_random() -> None:
    """By the clock's steps; from there on epsilon says."""
    agent = EpsilonGreedy(network([0.0, 1.0, 2.0]), constant(0.0), Seeds(1), warmup=50)
    assert shares(agent, clock=Clock(100, 49)) == pytest.approx([1 / 3] * 3, abs=0.03)
    assert shares(agent, clock=Clock(100, 50)) == [0, 0, 1]
    assert shares(agent, clock=Clock(100, 0), explore=False) == [0, 0, 1]


def test_a_chance_of_random_actions_in_evaluation() -> None:
    agent = EpsilonGreedy(network([0.0, 1.0, 2.0]), constant(0.9), Seeds(1), warmup=50, evaluation=0.3)
    assert shares(agent, explore=False) == pytest.approx([0.1, 0.1, 0.8], abs=0.03)


def test_a_loaded_policy_draws_for_as_many_rows_as_come() -> None:
    """One observation or many, again and again: no two rows and no two calls share their random numbers."""
    env = Chain(1)
    agent = EpsilonGreedy(QNetwork(env.spec, Net(hidden=())), constant(0.0), Seeds(1), evaluation=0.5)
    policy, obs = Policy(agent, env), np.zeros((ROWS, 5), np.float32)
    best = agent.forward(obs[:1]).argmax()
    first, second = policy(obs) == best, policy(obs) == best
    single = np.array([policy(obs[0]) for _ in range(ROWS)]) == best
    for found in (first, second, single):
        assert found.mean() == pytest.approx(0.75, abs=0.03)
    for one, other in ((first, second), (first, single), (second, single)):
        assert np.mean(one & other) == pytest.approx(0.75**2, abs=0.03)


def noisy_agent(**options: Any) -> NoisyGreedy:
    torch.manual_seed(0)
    made = QNetwork(SPEC, Net(hidden=(8,)), noisy="factorized", sigma=3.0)
    return NoisyGreedy(made, made.draw, Seeds(1), **options)


def story(agent: NoisyGreedy, steps: int, explore: bool = True) -> list[list[int]]:
    """Actions at random observations, the same for all stories."""
    seen = np.random.default_rng(0).normal(size=(steps, 6, 2)).astype(np.float32)
    return [agent.act(obs, FIRST[:6], None, Clock(100), explore).action.tolist() for obs in seen]


def test_noise_moves_actions_only_to_explore() -> None:
    """Drawn anew at each step; without exploring the means act, and no number is drawn."""
    agent = noisy_agent()
    agent.initial(6)
    still = agent.state_dict()["generator"]
    greedy = story(agent, 40, explore=False)
    assert agent.state_dict()["generator"] == still
    assert story(agent, 40, explore=False) == greedy
    explored = story(agent, 40)
    assert agent.state_dict()["generator"] != still
    assert explored != greedy
    assert story(agent, 40) != explored
    obs = np.ones((6, 2), np.float32)
    actions = [agent.act(obs, FIRST[:6], None, Clock(100)).action.tolist() for _ in range(40)]
    assert all(len(set(row)) == 1 for row in actions)  # one draw for all rows
    assert len({row[0] for row in actions}) > 1


def test_noise_goes_on_where_it_was_saved_and_begins_anew_at_the_start() -> None:
    agent, other = noisy_agent(), noisy_agent()
    agent.initial(6)
    beginning = story(agent, 20)
    state = agent.state_dict()
    then = story(agent, 20)
    other.initial(6)
    other.load_state_dict(state)
    assert story(other, 20) == then
    other.initial(6)
    assert story(other, 20) == beginning

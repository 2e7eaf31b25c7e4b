"""`world-state` adds the world's state to observations; `pad-agents` gives all agents the same spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec

from rlplug_core.errors import UsageError
from rlplug_core.export.agent import DetachedEnv
from rlplug_core.testing import wrapper_checks
from rlplug_core.types import MASK
from rlplug_envs.agents import Agents
from rlplug_envs.games import Parallel, Turns
from rlplug_envs.wrappers.worlds import PadAgents, WorldState
from tests.envs.games import Dilemma


class Uneven(ParallelEnv[str, Any, Any]):
    """Two agents with different spaces; the state is the step and a random number. Stores the actions."""

    metadata = {"name": "uneven"}
    render_mode = None
    has_state = True

    def __init__(self, discrete: bool = True) -> None:
        self.possible_agents = ["small", "large"]
        self.agents = []
        self.discrete = discrete
        self.taken: list[dict[str, Any]] = []
        self.at = 0
        self.number = 0.0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-9, 9, (2 if agent == "small" else 3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        if self.discrete:
            return spaces.Discrete(2, start=5) if agent == "small" else spaces.Discrete(4)
        return spaces.Box(0, 10, (1,), np.float64) if agent == "small" else spaces.Box(-2, 2, (2,), np.float32)

    def state(self) -> Any:
        if not self.has_state:
            raise NotImplementedError
        return np.array([self.at, self.number], np.float64)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.at = 0
        self.number = float(self.rng.random())
        return self.observe(), {agent: {} for agent in self.agents}

    def observe(self) -> dict[str, Any]:
        return {agent: np.arange(1, 3 + (agent == "large"), dtype=np.float32) + self.at for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        self.taken.append(dict(actions))
        self.at += 1
        over = dict.fromkeys(self.agents, self.at == 3)
        results = self.observe(), dict.fromkeys(self.agents, 1.0), over, dict.fromkeys(self.agents, False), {}
        self.agents = [] if self.at == 3 else self.agents
        return results


class Stateless(Uneven):
    has_state = False


def agents(kind: Any = Uneven, worlds: int = 2, **options: Any) -> Agents:
    return Agents(lambda: Parallel(kind(**options)), worlds, "uneven")


def test_observations_have_the_state_of_their_world() -> None:
    """Both agents of a world get the same state at each step."""
    env = WorldState(PadAgents(agents()))
    assert env.spec.obs["state"].shape == (2,)
    now = env.reset(3)
    assert now.obs["obs"].tolist() == [[1, 2, 0], [1, 2, 3]] * 2
    assert now.obs[MASK].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]] * 2
    worlds: list[Any] = [game.env.env.env for game in env.env._games]
    numbers: list[list[float]] = [[], []]
    for step in range(7):
        state = now.obs["state"]
        for world, inner in enumerate(worlds):
            assert state[2 * world].tolist() == pytest.approx([inner.at, inner.number])
            assert (state[2 * world] == state[2 * world + 1]).all()
            numbers[world].append(inner.number)
        final = now.final_obs["state"]
        if step in (3, 6):  # the last state of an episode is not the first of the next one
            assert final[:, 0].tolist() == [3] * 4
            assert state[:, 0].tolist() == [0] * 4
        now = env.step(np.zeros(4, np.int64))
    assert len({*numbers[0], *numbers[1]}) == 6  # three episodes of two worlds


def test_pad_agents_pads_observations_and_masks_actions() -> None:
    env = PadAgents(agents(worlds=1))
    assert not env.spec.kinds
    assert env.spec.action == spaces.Discrete(4)
    now = env.reset(0)
    assert now.obs["obs"].tolist() == [[1, 2, 0], [1, 2, 3]]
    assert now.obs[MASK].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    env.step(np.array([1, 3]))
    assert env.env._games[0].env.env.taken == [{"small": 6, "large": 3}]


def test_pad_agents_ignores_extra_numbers_of_actions() -> None:
    env = PadAgents(agents(worlds=1, discrete=False))
    assert env.spec.action.shape == (2,)
    assert env.reset(0).obs.tolist() == [[1, 2, 0], [1, 2, 3]]
    env.step(np.array([[0.5, -1.0], [0.5, -1.0]], np.float32))
    (taken,) = env.env._games[0].env.env.taken
    assert taken["small"].tolist() == [7.5]
    assert taken["small"].dtype == np.float64
    assert taken["large"].tolist() == [1.0, -2.0]


@pytest.mark.parametrize("wrap", [PadAgents, WorldState])
def test_wrapped_world_resumes_exactly(wrap: Any) -> None:
    env, other = (wrap(agents(discrete=False)) for _ in range(2))
    size = env.spec.action.shape if wrap is PadAgents else (3,)
    action = np.full((4, *size), 0.25, np.float32)
    env.reset(5)
    env.step(action)
    other.reset(1)
    other.load_state_dict(env.state_dict())
    for _ in range(5):
        now, then = env.step(action), other.step(action)
        for name in ("reward", "terminated", "is_first"):
            assert (getattr(now, name) == getattr(then, name)).all()
        first, second = (found.obs if isinstance(found.obs, dict) else {"": found.obs} for found in (now, then))
        assert str(first) == str(second)


def test_turn_games_have_the_state() -> None:
    class WithState(Dilemma):
        def state(self) -> Any:
            return np.array([self.at], np.float32)

    def in_turns() -> Any:
        world = parallel_to_aec(WithState(rounds=2))
        world.state_space = spaces.Box(0, 9, (1,), np.float32)
        world.state = lambda: world.env.state()
        return Turns(world)

    env = WorldState(Agents(in_turns, 1, "world"))
    now = env.reset(0)
    seen = [now.obs["state"][0, 0]]
    for _ in range(3):
        now = env.step(np.zeros(2, np.int64))
        seen.append(now.obs["state"][np.flatnonzero(now.turn)[0], 0])
    assert seen == [0, 0, 1, 1]


def test_kit_checks_wrappers_of_single_environments() -> None:
    """Its own environment between the two cannot be opened, so it skips that check."""
    known = {"wrapper-episodes": "its step is several steps of the environment"}
    checks = wrapper_checks("action-repeat", env="CartPole-v1", expected_failures=known)
    outcomes = {check.name: check.outcome() for check in checks}
    assert not [(name, outcome.message) for name, outcome in outcomes.items() if outcome.status == "failed"]
    assert "below all arrays" in outcomes["wrapper-inputs"].message


def test_exported_policy_has_the_spaces_of_the_wrapped_world() -> None:
    spec = WorldState(PadAgents(agents())).spec
    assert WorldState(DetachedEnv(spec, spec.action)).spec is spec


def test_unsuitable_worlds_raise() -> None:
    from rlplug_core.testing.envs import Chain

    with pytest.raises(UsageError, match=r"world-state: this world has no state\(\), so leave the wrapper out"):
        WorldState(agents(Stateless))
    with pytest.raises(UsageError, match="pad-agents needs vectors as observations of all agents"):
        PadAgents(Agents(lambda: Parallel(Dilemma()), 1, "dilemma"))
    for wrap, name in ((PadAgents, "pad-agents"), (WorldState, "world-state")):
        with pytest.raises(UsageError, match=f"{name} goes around worlds with many agents.*put {name} first"):
            wrap(Chain(2))

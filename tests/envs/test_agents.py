"""Multi-agent worlds of both PettingZoo interfaces: one row per agent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import parallel_to_aec

from rlplug_core.acting.random_agent import RandomAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.errors import BadEnv, MissingPackage, UnknownEnv, UsageError
from rlplug_core.loop import evaluate as evaluating
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.evaluate import Evaluation, evaluate
from rlplug_core.nets.actions import parts
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.envs import make_env
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env
from rlplug_core.runs.data import _play_episodes
from rlplug_core.seeds import Seeds
from rlplug_core.testing import env_checks
from rlplug_core.types import Act, Step, Timestep
from rlplug_envs.agents import Agents
from rlplug_envs.families.pettingzoo import _rom_argument
from rlplug_envs.games import Parallel, Turns
from rlplug_envs.rows import row_seed
from rlplug_envs.wrappers.opponents import RandomOpponents
from tests.envs.games import Dilemma, Leaving, in_turns

WORLDS = [
    "mpe2.simple_spread", "mpe2.simple_speaker_listener", "classic.tictactoe", "classic.connect_four_v3", "classic.rps",
    "tests.envs.games",
]  # fmt: skip


@dataclass
class CallCounter:
    """An agent with actions 0 and 1, which depend on the row and on the number of calls of `act`."""

    calls: int = 0
    memory: Any = None
    log: list[Any] = field(default_factory=list)

    def weights(self) -> dict[str, Any]:
        return {}

    def initial(self, num_envs: int) -> Any:
        return self.memory

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        self.calls += 1
        action = (np.arange(len(is_first)) * 7 + self.calls * self.calls // 3) % 2
        return Act(action, recurrent_state, {"calls": np.full(len(is_first), float(self.calls), np.float32)})

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def transitions(env: Agents, agent: Any, steps: int) -> dict[str, list[tuple[Any, ...]]]:
    """An actor's valid transitions by agent."""
    actor = Actor(env, None, agent, None, Clock(10**9))  # type: ignore[arg-type]
    actor.reset(3)
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in env.agents}
    for _ in range(steps):
        step = actor.step()
        for row in np.flatnonzero(step.valid):
            found[env.agents[row]].append(_row(step, row))
    return found


def _row(step: Step, row: int) -> tuple[Any, ...]:
    obs_action_reward = np.asarray(step.obs)[row].tolist(), int(step.action[row]), float(step.reward[row])
    ends = bool(step.terminated[row]), bool(step.truncated[row]), bool(step.is_first[row])
    return *obs_action_reward, np.asarray(step.next_obs)[row].tolist(), *ends


class Alternating(CallCounter):
    """Acts by a row's own observation, so that both forms of a game get the same actions."""

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        self.calls += 1
        rows = np.arange(len(is_first))
        return Act((np.asarray(obs) + rows + is_first) % 2, None, {})


@pytest.mark.parametrize("cut", [False, True])
def test_parallel_and_turn_forms_give_the_same_transitions(cut: bool) -> None:
    together = transitions(Agents(lambda: Parallel(Dilemma(4, cut)), 1, "d"), Alternating(), 40)
    turns = transitions(Agents(lambda: Turns(in_turns(4, cut)), 1, "d"), Alternating(), 80)
    for agent in ("row", "column"):
        assert len(turns[agent]) >= 39
        assert together[agent][:39] == turns[agent][:39]
        ends = [(step[4], step[5]) for step in turns[agent][:12]]
        assert ends == [(False, False)] * 3 + [(not cut, cut)] + ends[4:]


def test_spec_and_wrappers_keep_turns() -> None:
    for make, turns in ((lambda: Turns(in_turns()), True), (lambda: Parallel(Dilemma()), False)):
        env = Agents(make, 1, "d")
        assert (env.spec.turns, env._acting_agents() is not None) == (turns, turns)
        assert wrap_env(env, [WrapperSpec.parse("flatten"), WrapperSpec.parse("frame-stack")]).spec.turns == turns


def test_waiting_agent_keeps_its_action() -> None:
    """A transition has the action of the agent's turn, not those that it gave while it waited."""
    env = Agents(lambda: Turns(in_turns(50)), 1, "d")
    agent = CallCounter()
    actor = Actor(env, None, agent, None, Clock(10**9))  # type: ignore[arg-type]
    actor.reset(0)
    turns = []
    for _ in range(20):
        turn = env._acting_agents()
        step = actor.step()
        assert turn is not None
        turns.append((np.flatnonzero(turn).tolist(), [float(call) for call in step.extras["calls"][step.valid]]))
    assert [turn for turn, _ in turns[:4]] == [[0], [1], [0], [1]]
    # Row 0 acts in the odd calls, and its transition comes with the even ones, when both have acted.
    assert [calls for _, calls in turns[1:9]] == [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0], [8.0]]


def test_agents_that_left_have_no_transitions_until_reset() -> None:
    env = Agents(lambda: Parallel(Leaving()), 2, "leaving")
    now = env.reset(5)
    assert now.is_first.all()
    valid, firsts = [], []
    for _ in range(6):
        now = env.step(np.zeros(6, np.int64))
        valid.append(now.valid[:3].tolist())
        firsts.append(now.is_first[:3].tolist())
    assert valid == [[True, True, True], [False, True, True], [False, False, True]] * 2
    assert firsts == ([[False] * 3, [False] * 3, [True] * 3]) * 2
    assert not now.ended or now.truncated[2]


def test_each_agent_has_its_own_returns_and_lengths() -> None:
    env = Agents(lambda: Parallel(Leaving()), 1, "leaving")
    env.reset(5)
    episodes = [episode for _ in range(3) for episode in env.step(np.zeros(3, np.int64)).episodes]
    assert [(episode.agent, episode.total, episode.length) for episode in episodes] == [
        ("a_0", 1.0, 1),
        ("a_1", 11.0 + 12.0, 2),
        ("a_2", 21.0 + 22.0 + 23.0, 3),
    ]


def test_final_obs_is_not_from_the_next_episode() -> None:
    env = Agents(lambda: Parallel(Leaving()), 1, "leaving")
    luck = env.reset(5).obs[:, 2].copy()
    for _ in range(3):
        now = env.step(np.array([1, 2, 3]))
    assert now.final_obs[2].tolist() == [3, 3, luck[2]]
    assert now.obs[2].tolist()[:2] == [0, 0]
    assert now.truncated.tolist() == [False, False, True]
    assert not now.terminated.any()


@pytest.mark.parametrize("words", [(), ("random-opponents",)])
def test_returns_of_cut_evaluations_are_unscaled(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "LONGEST_EPISODE", 3)
    envs = [wrap(Agents(lambda: Parallel(Dilemma()), 2, "d"), *words, *more) for more in ((), ("scale-reward",))]
    bare, scaled = (evaluate(CallCounter(), env, 0, Clock(1)) for env in envs)
    assert (bare.returns, bare.cut) == (scaled.returns, envs[1].spec.num_envs)
    assert sum(bare.returns) > 3


class Paired(Dilemma):
    """Observations are two numbers."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        obs, infos = super().reset(seed, options)
        return {agent: np.zeros(2, np.float32) for agent in obs}, infos

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, *rest = super().step(actions)
        return ({agent: np.zeros(2, np.float32) for agent in obs}, *rest)  # type: ignore[return-value]


class OutOfSpace(Dilemma):
    """Observes 3, which its space does not contain, from the second step on."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, *rest = super().step(actions)
        return ({**obs, "column": 3 if self.at > 1 else 0}, *rest)  # type: ignore[return-value]


@pytest.mark.parametrize("make", [lambda: Parallel(OutOfSpace()), lambda: Turns(parallel_to_aec(OutOfSpace()))])
def test_observation_outside_its_space_raises(make: Any) -> None:
    env = Agents(make, 2, "d", "")
    message = r"^d, agent column, step 2 of its episode: the observation is 3, and Discrete\(3\) has 0 to 2; let obs"
    with pytest.raises(BadEnv, match=message):
        walk(env, env.reset(0), 5)


class Wrong(Paired):
    """The second step of the second agent gives `obs` and `reward`."""

    def __init__(self, obs: Any, reward: Any) -> None:
        super().__init__()
        self.bad = obs, reward

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, rewards, *rest = super().step(actions)
        if self.at == 2:
            obs = {**obs, "column": self.bad[0]}
            rewards = {**rewards, "column": self.bad[1]}
        return (obs, rewards, *rest)


@pytest.mark.parametrize("form", [Parallel, lambda world: Turns(parallel_to_aec(world))])
@pytest.mark.parametrize(
    ("obs", "reward", "message"),
    [
        (np.float32([0, np.nan]), 1.0, r"an observation is not a number \(NaN\)"),
        (np.float32(0.5), 1.0, r"the observation has shape \(\), its observation space says \(2,\)"),
        (np.zeros(3, np.float32), 1.0, r"the observation has shape \(3,\), its observation space says \(2,\)"),
        (np.zeros(2, np.float32), "much", "the reward is 'much'; give a number"),
        (np.zeros(2, np.float32), np.nan, "the reward is nan; give a finite number"),
    ],
)
def test_bad_values_raise_with_agent_and_step(form: Any, obs: Any, reward: Any, message: str) -> None:
    if form is not Parallel and reward == "much":
        pytest.skip("PettingZoo's own conversion adds rewards up")
    env = Agents(lambda: form(Wrong(obs, reward)), 1, "d", "")
    with pytest.raises(BadEnv, match=f"^d, agent column, step 2 of its episode: {message}"):
        walk(env, env.reset(0), 5)


def test_worlds_have_different_reproducible_seeds() -> None:
    env = Agents(lambda: Parallel(Leaving()), 3, "leaving")
    first = env.reset(1).obs[:, 2].copy()
    assert len(set(first.tolist())) > 1
    assert first.tolist() == env.reset(1).obs[:, 2].tolist()
    assert first.tolist() != env.reset(2).obs[:, 2].tolist()


def random_opponents(worlds: int) -> RandomOpponents:
    return RandomOpponents(make_env("pettingzoo/classic.connect_four", worlds))


@pytest.mark.parametrize("make", [*(partial(make_env, f"pettingzoo/{world}") for world in WORLDS), random_opponents])
def test_worlds_resume_exactly(make: Callable[[int], Env]) -> None:
    env, other = make(2), make(2)
    assert env.spec.inexact == ""
    agent = RandomAgent(env.spec.action, Seeds(0))
    now = env.reset(4)
    clock = Clock(1)
    for _ in range(17):
        now = env.step(agent.act(now.obs, now.is_first, None, clock).action)
    other.load_state_dict(env.state_dict())
    for _ in range(60):
        action = agent.act(now.obs, now.is_first, None, clock).action
        now, then = env.step(action), other.step(action)
        for name in ("reward", "terminated", "truncated", "is_first", "valid", "turn"):
            assert np.array_equal(getattr(now, name), getattr(then, name)), name
        assert str(now.obs) == str(then.obs)
        assert now.episodes == then.episodes
    env.close()
    other.close()


@pytest.mark.parametrize("game", ["tictactoe", "connect_four"])
def test_agents_get_masks_and_make_legal_moves(game: str) -> None:
    env = make_env(f"pettingzoo/classic.{game}", 3)
    agent = RandomAgent(env.spec.action, Seeds(0))
    found = evaluate(agent, env, 1, Clock(1))
    assert len(found.returns) == 6
    assert found.episodes == 3
    assert all(a + b == 0 for a, b in zip(found.returns[::2], found.returns[1::2], strict=True))
    assert min(found.lengths) >= 2  # an illegal move would end a game at once


def test_evaluation_has_returns_by_agent() -> None:
    found = Evaluation((1.0, 4.0, 3.0, 8.0), (2, 2, 2, 2), (), (), ("a", "b", "a", "b"))
    assert found.by_agent == {"a": 2.0, "b": 6.0}
    assert (found.episodes, found.mean) == (2, 4.0)
    assert found.sem == pytest.approx(np.std([2.5, 5.5], ddof=1) / np.sqrt(2))


class ObservationCounter(CallCounter):
    """Counts each row's observations of an episode in its recurrent state, logs the counts and acts by them."""

    def initial(self, num_envs: int) -> Any:
        return {"seen": np.zeros(num_envs, np.int64)}

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        seen = np.where(is_first, 0, recurrent_state["seen"]) + 1
        self.log.append(seen.tolist())
        return Act(seen % 2, {"seen": seen}, {})


def test_recurrent_state_gets_each_observation_once() -> None:
    """In training, in evaluations and in recordings, also for agents that wait."""

    def turns() -> Agents:
        return Agents(lambda: Turns(in_turns(50)), 1, "d")

    trained = ObservationCounter()
    evaluated = ObservationCounter()
    recorded = ObservationCounter()
    transitions(turns(), trained, 8)
    evaluate(evaluated, turns(), 3, Clock(1))
    _play_episodes(recorded, turns(), 3, Clock(1), 8, explore=True)
    assert trained.log[:8] == evaluated.log[:8] == recorded.log[:8]
    assert max(max(row) for row in trained.log[:8]) == 4


class Paid(Dilemma):
    """Pays each agent its own action."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, _, *rest = super().step(actions)
        return (obs, {agent: float(action) for agent, action in actions.items()}, *rest)


def test_recording_has_the_actions_that_were_taken() -> None:
    """A waiting row gives another action at each step."""
    world = Agents(lambda: Turns(parallel_to_aec(Paid(50))), 1, "paid")
    arrays, _ = _play_episodes(CallCounter(), world, 3, Clock(1), 30, explore=True)
    assert set(arrays["rewards"].tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(arrays["actions"], arrays["rewards"])


def test_missing_package_of_an_environment_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pettingzoo.classic.leduc_holdem_v4", raising=False)
    for name in [name for name in sys.modules if name.startswith(("rlcard", "pettingzoo.classic.rlcard_envs"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rlcard", None)
    with pytest.raises(MissingPackage, match=r"install it: python -m pip install rlcard$"):
        make_env("pettingzoo/classic.leduc_holdem", 1)


def test_own_world_in_a_package_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_worlds").mkdir()
    (tmp_path / "my_worlds" / "dilemma_v0.py").write_text("from tests.envs.games import parallel_env\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_env("pettingzoo/my_worlds.dilemma", 1).spec.agents == ("row", "column")


def test_own_world_in_a_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone_dilemma.py").write_text("from tests.envs.games import parallel_env\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_env("pettingzoo/lone_dilemma", 1).spec.agents == ("row", "column")
    for name in ("no_such_world", "classic"):
        with pytest.raises(UnknownEnv, match=f"'pettingzoo/{name}' names no module; write one such as"):
            make_env(f"pettingzoo/{name}", 1)


@pytest.mark.parametrize("package", ["pettingzoo", "mpe2"])
def test_missing_extra_raises(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    world = "mpe2.simple_spread" if package == "mpe2" else "classic.tictactoe"
    with pytest.raises(MissingPackage, match=rf"'{package}[.a-z]*', .* pip install 'rlplug-envs\[multiagent\]'$"):
        make_env(f"pettingzoo/{world}", 1)


def test_wrong_names_get_suggestions() -> None:
    with pytest.raises(UnknownEnv, match=r"there is 'simple_spread_v3'"):
        make_env("pettingzoo/mpe2.simple_spread_v1", 1)
    with pytest.raises(UnknownEnv, match=r"did you mean 'simple_spread"):
        make_env("pettingzoo/mpe2.simple_spraed", 1)
    with pytest.raises(
        MissingPackage, match=r"'no_such_package', which is not installed.*; install it, or say where it is"
    ):
        make_env("pettingzoo/no_such_package.world", 1)
    with pytest.raises(UsageError, match="round"):
        make_env("pettingzoo/tests.envs.games", 1, {"round": 3})


def test_agents_with_different_spaces_match_pettingzoo() -> None:
    """A speaker observes the goal and sends a letter; a listener gets the letter and moves."""
    from mpe2 import simple_speaker_listener_v4

    env = make_env("pettingzoo/mpe2.simple_speaker_listener", 1)
    assert env.spec.kinds == env.spec.agents == ("speaker_0", "listener_0")
    assert parts(env.spec.action)[1].columns == slice(1, 2)
    world = simple_speaker_listener_v4.parallel_env()
    expected, _ = world.reset(seed=row_seed(7, 0))
    now = env.reset(7)
    for letter, move in [(0, 3), (2, 1), (1, 4), (0, 0)]:
        for row, agent in enumerate(env.spec.agents):
            assert np.array_equal(now.obs[agent][row], np.float32(expected[agent]))
        # A row's value for the other agent's part is ignored.
        now = env.step(np.array([[letter, 2], [1, move]], np.float32))
        expected, rewards, *_ = world.step({"speaker_0": letter, "listener_0": move})
        assert now.reward.tolist() == [np.float32(rewards[agent]) for agent in env.spec.agents]


def test_one_policy_for_agents_with_different_spaces_raises() -> None:
    spec = make_env("pettingzoo/mpe2.simple_speaker_listener", 1).spec
    with pytest.raises(
        UsageError, match="different spaces, and Algorithm trains one network for all of them; use independent"
    ):
        Algorithm(spec, None, Context(Seeds(0)))


def test_opponents_play_all_other_seats_legally() -> None:
    env = random_opponents(4)
    assert (env.spec.num_envs, env.spec.agents) == (4, ())
    found = evaluate(RandomAgent(env.spec.action, Seeds(0)), env, 1, Clock(1))
    assert sorted(set(found.returns)) in ([-1.0, 1.0], [-1.0], [1.0])
    assert min(found.lengths) >= 2
    assert found.episodes == 4


def test_opponents_need_several_agents() -> None:
    with pytest.raises(UsageError, match="does not have several agents with the same spaces"):
        RandomOpponents(make_env("CartPole-v1", 1))


MEMORIES = ("frame-stack:frames=3", "time-feature:steps=20", "normalize-obs")


def wrap(env: Env, *words: str) -> Env:
    return wrap_env(env, [WrapperSpec.parse(word) for word in words])


def walk(env: Env, now: Timestep, steps: int, seed: int = 0) -> list[Timestep]:
    """The timesteps of random actions, with copies of their observations."""
    generator = np.random.default_rng(seed)
    found = [now]
    for _ in range(steps):
        now.obs = np.array(now.obs)
        now = env.step(generator.integers(2, size=env.spec.num_envs))
        found.append(now)
    return found


@pytest.mark.parametrize("words", MEMORIES)
def test_waiting_agent_keeps_its_observation(words: str) -> None:
    env = wrap(Agents(lambda: Turns(in_turns(4)), 2, "d"), "flatten", words)
    steps = walk(env, env.reset(3), 60)
    waited = 0
    for before, now in pairwise(steps):
        assert now.turn is not None
        waits = ~(now.turn | now.valid)
        waited += int(waits.sum())
        assert np.array_equal(now.obs[waits], before.obs[waits])
    assert waited > 50


def test_frame_stack_has_observations_of_the_agents_turns() -> None:
    bare = Agents(lambda: Turns(in_turns(4)), 2, "d")
    plain = wrap(bare, "flatten")
    stacked = wrap(Agents(lambda: Turns(in_turns(4)), 2, "d"), "flatten", "frame-stack:frames=3")
    history: dict[int, list[Any]] = {}
    for bare_now, now in zip(walk(plain, plain.reset(3), 40), walk(stacked, stacked.reset(3), 40), strict=True):
        assert bare_now.turn is not None
        for row in np.flatnonzero(bare_now.turn):
            history[row] = [*([] if bare_now.is_first[row] else history[row]), bare_now.obs[row]]
            frames = [history[row][0]] * 3 + history[row][1:]
            assert np.array_equal(now.obs[row], np.concatenate(frames[-3:]))


def test_sticky_action_repeats_the_action_of_the_agents_turn() -> None:
    """With probability 1, an agent repeats its first action of an episode until the end."""
    env = wrap(Agents(lambda: Turns(in_turns(6)), 2, "d"), "sticky-actions:probability=1")
    now = env.reset(3)
    first = np.full(4, -1)
    generator = np.random.default_rng(0)
    repeated = 0
    for _ in range(60):
        assert now.turn is not None
        first[now.is_first] = -1
        chosen = generator.integers(0, 2, 4)
        turn = now.turn.copy()
        now = env.step(chosen)
        repeated += int((turn & (first >= 0)).sum())
        first = np.where(turn & (first < 0), chosen, first)
        assert (env.state_dict()["taken"][turn] == first[turn]).all()
    assert repeated > 60


@pytest.mark.parametrize("words", MEMORIES)
@pytest.mark.parametrize("make", [lambda: Turns(in_turns(4)), lambda: Parallel(Leaving())])
def test_observations_of_waiting_agents_resume_exactly(make: Any, words: str) -> None:
    env, other = (wrap(Agents(make, 2, "d"), "flatten", words) for _ in range(2))
    walk(env, env.reset(3), 9)
    other.load_state_dict(env.state_dict())
    zeros = np.zeros(env.spec.num_envs, np.int64)
    for now, expected in zip(*(walk(each, each.step(zeros), 20) for each in (other, env)), strict=True):
        assert np.array_equal(now.obs, expected.obs)


def test_moments_exclude_agents_that_left() -> None:
    bare = Agents(lambda: Parallel(Leaving()), 2, "d")
    env = wrap(Agents(lambda: Parallel(Leaving()), 2, "d"), "normalize-obs")
    steps = walk(bare, bare.reset(3), 30)
    walk(env, env.reset(3), 30)
    present = np.concatenate([now.obs[now.valid | now.is_first] for now in steps])
    assert complete(env).learned()["count"] == len(present) < 31 * 6
    assert np.allclose(complete(env).learned()["mean"], present.mean(0), atol=1e-5)


class Returning(ParallelEnv[str, Any, int]):
    """Two agents for eight steps; the second leaves after two, returns after four and leaves after six."""

    metadata = {"name": "returning"}
    possible_agents = ["stays", "returns"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.at = 0
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.at += 1
        over = {agent: self.at == 8 or (agent == "returns" and self.at in (2, 6)) for agent in actions}
        left = [] if self.at == 8 else [agent for agent in actions if not over[agent]]
        self.agents = list(self.possible_agents) if self.at == 4 else left
        ends = {**dict.fromkeys(self.agents, False), **over}
        flags = dict.fromkeys(ends, False)
        return dict.fromkeys(ends, self.at), dict.fromkeys(ends, 1.0), ends, flags, {agent: {} for agent in ends}


def test_agent_that_returns_has_two_episodes() -> None:
    env = Agents(lambda: Parallel(Returning()), 1, "returning", "a test")
    for _ in range(2):
        env.reset(0)
        found = [episode for _ in range(8) for episode in env.step(np.zeros(2, np.int64)).episodes]
        assert [(episode.agent, episode.total, episode.length) for episode in found] == [
            ("returns", 2.0, 2),
            ("returns", 2.0, 2),
            ("stays", 8.0, 8),
        ]


@pytest.mark.parametrize("world", ["mpe2.simple_speaker_listener_v4", "classic.tictactoe"])
def test_worlds_pass_the_environment_checks(world: str) -> None:
    statuses = {check.name: check.outcome().status for check in env_checks(f"pettingzoo/{world}")}
    on_device = {name for name in statuses if name.startswith("env-device")}  # their observations are arrays
    assert {name for name, status in statuses.items() if status != "passed"} == on_device, statuses


def with_price(kind: type[Any]) -> Any:
    """A world with the reward of each agent as `price` in its info."""

    class Priced(kind):  # type: ignore[misc]
        def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
            *found, _ = super().step(actions)
            return (*found, {agent: {"price": reward} for agent, reward in found[1].items()})

    return Priced()


class Wants:
    signals = ("price",)


WORLDS_WITH_PRICES: dict[str, Any] = {
    "leaving": lambda: Agents(lambda: Parallel(with_price(Leaving)), 2, "w", ""),
    "together": lambda: Agents(lambda: Parallel(with_price(Dilemma)), 2, "w", ""),
    "turns": lambda: Agents(lambda: Turns(parallel_to_aec(with_price(Dilemma))), 2, "w", ""),
    "opponents": lambda: RandomOpponents(Agents(lambda: Parallel(with_price(Leaving)), 2, "w", "")),
    "wrapped": lambda: wrap_env(WORLDS_WITH_PRICES["leaving"](), [WrapperSpec.parse("frame-stack")]),
}


@pytest.mark.parametrize("world", WORLDS_WITH_PRICES)
def test_transition_has_the_signal_of_its_agent(world: str) -> None:
    env = WORLDS_WITH_PRICES[world]()
    actor = Actor(env, Wants(), CallCounter(), None, Clock(10**9))  # type: ignore[arg-type]
    actor.reset(0)
    count = 0
    for _ in range(40):
        step = actor.step()
        assert step.extras["price"][step.valid].tolist() == step.reward[step.valid].tolist()
        assert not step.extras["price"][~step.valid].any()
        count += int(step.valid.sum())
    assert count > 40


def test_atari_worlds_get_the_roms_of_ale_py(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pettingzoo.atari.pong_v3")
    if find_spec("ale_py"):
        assert (
            Path(str(_rom_argument("pettingzoo/atari.pong", module)["auto_rom_install_path"])) / "pong.bin"
        ).is_file()
    assert _rom_argument("pettingzoo/butterfly.pong", ModuleType("pettingzoo.butterfly.pong_v3")) == {}
    monkeypatch.setattr("rlplug_envs.families.pettingzoo.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="needs the ROMs in the package ale-py; install it: python -m pip install"):
        _rom_argument("pettingzoo/atari.pong", module)

"""Worlds with many agents: one row per agent, whichever of PettingZoo's interfaces they have."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from rlplug_envs.families.pettingzoo import _roms
from rlplug_envs.games import Parallel, Turns
from rlplug_envs.rows import row_seed
from rlplug_envs.wrappers.opponents import RandomOpponents
from tests.envs.games import Dilemma, Leaving, in_turns

WORLDS = ["mpe2.simple_spread", "classic.tictactoe", "classic.connect_four_v3", "classic.rps", "tests.envs.games"]


@dataclass
class Choosing:
    """Acts by row and by how often it was asked: 0 or 1, so that which action was taken can be told."""

    asked: int = 0
    memory: Any = None
    log: list[Any] = field(default_factory=list)

    def weights(self) -> dict[str, Any]:
        return {}

    def initial(self, num_envs: int) -> Any:
        return self.memory

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        self.asked += 1
        action = (np.arange(len(is_first)) * 7 + self.asked * self.asked // 3) % 2
        return Act(action, recurrent_state, {"asked": np.full(len(is_first), float(self.asked), np.float32)})

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.asked = state["asked"]


def transitions(env: Agents, agent: Any, calls: int) -> dict[str, list[tuple[Any, ...]]]:
    """What an actor hands to a buffer, by agent: the rows that hold a transition."""
    actor = Actor(env, None, agent, None, Clock(10**9))  # type: ignore[arg-type]
    actor.reset(3)
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in env.agents}
    for _ in range(calls):
        step = actor.step()
        for row in np.flatnonzero(step.valid):
            found[env.agents[row]].append(_row(step, row))
    return found


def _row(step: Step, row: int) -> tuple[Any, ...]:
    seen = np.asarray(step.obs)[row].tolist(), int(step.action[row]), float(step.reward[row])
    ends = bool(step.terminated[row]), bool(step.truncated[row]), bool(step.is_first[row])
    return *seen, np.asarray(step.next_obs)[row].tolist(), *ends


class Alternating(Choosing):
    """Acts by what a row sees and is asked as its own: the same in both forms of a game."""

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        self.asked += 1
        rows = np.arange(len(is_first))
        return Act((np.asarray(obs) + rows + is_first) % 2, None, {})


class Unpaid(Dilemma):
    """Pays the second agent no number in the second round."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, rewards, *rest = super().step(actions)
        return (obs, {**rewards, "column": np.nan} if self.at == 2 else rewards, *rest)


@pytest.mark.parametrize("cut", [False, True])
def test_the_parallel_and_the_turn_form_of_a_game_give_the_same_transitions(cut: bool) -> None:
    together = transitions(Agents(lambda: Parallel(Dilemma(4, cut)), 1, "d"), Alternating(), 40)
    turns = transitions(Agents(lambda: Turns(in_turns(4, cut)), 1, "d"), Alternating(), 80)
    for agent in ("row", "column"):
        assert len(turns[agent]) >= 39
        assert together[agent][:39] == turns[agent][:39]
        ends = [(step[4], step[5]) for step in turns[agent][:12]]
        assert ends == [(False, False)] * 3 + [(not cut, cut)] + ends[4:]


def test_the_spec_says_whether_agents_act_in_turn_and_wrappers_keep_it() -> None:
    for make, turns in ((lambda: Turns(in_turns()), True), (lambda: Parallel(Dilemma()), False)):
        env = Agents(make, 1, "d")
        assert (env.spec.turns, env._turn() is not None) == (turns, turns)
        assert wrap_env(env, [WrapperSpec.parse("flatten"), WrapperSpec.parse("frame-stack")]).spec.turns == turns


def test_a_waiting_agent_keeps_the_action_that_it_took() -> None:
    """The transition of a turn game holds what was said in the turn, not what was asked for while it waited."""
    env, agent = Agents(lambda: Turns(in_turns(50)), 1, "d"), Choosing()
    actor = Actor(env, None, agent, None, Clock(10**9))  # type: ignore[arg-type]
    actor.reset(0)
    asked = []
    for _ in range(20):
        turn = env._turn()
        step = actor.step()
        assert turn is not None
        asked.append((np.flatnonzero(turn).tolist(), [float(one) for one in step.extras["asked"][step.valid]]))
    assert [turn for turn, _ in asked[:4]] == [[0], [1], [0], [1]]
    # Row 0 acts in the odd calls, and its transition comes with the even ones, when both have acted.
    assert [said for _, said in asked[1:9]] == [[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [7.0], [8.0]]


def test_agents_that_leave_have_no_transitions_until_the_world_begins_anew() -> None:
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


def test_returns_and_lengths_are_those_of_each_agent() -> None:
    env = Agents(lambda: Parallel(Leaving()), 1, "leaving")
    env.reset(5)
    episodes = [one for _ in range(3) for one in env.step(np.zeros(3, np.int64)).episodes]
    assert [(one.agent, one.total, one.length) for one in episodes] == [
        ("a_0", 1.0, 1), ("a_1", 11.0 + 12.0, 2), ("a_2", 21.0 + 22.0 + 23.0, 3)
    ]  # fmt: skip


def test_a_successor_is_true_where_the_world_begins_anew() -> None:
    env = Agents(lambda: Parallel(Leaving()), 1, "leaving")
    luck = env.reset(5).obs[:, 2].copy()
    for _ in range(3):
        now = env.step(np.array([1, 2, 3]))
    assert now.final_obs[2].tolist() == [3, 3, luck[2]]
    assert now.obs[2].tolist()[:2] == [0, 0]
    assert now.truncated.tolist() == [False, False, True]
    assert not now.terminated.any()


@pytest.mark.parametrize("make", [lambda: Parallel(Unpaid()), lambda: Turns(parallel_to_aec(Unpaid()))])
def test_a_reward_that_is_no_number_is_named_with_agent_and_step(make: Any) -> None:
    env = Agents(make, 2, "d", "")
    with pytest.raises(
        BadEnv, match=r"^d, agent column, step 2 of its episode: the reward is nan; give a finite number"
    ):
        walked(env, env.reset(0), 5)


@pytest.mark.parametrize("words", [(), ("random-opponents",)])
def test_returns_that_an_evaluation_cuts_are_the_worlds_own(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "LONGEST", 3)
    envs = [around(Agents(lambda: Parallel(Dilemma()), 2, "d"), *words, *more) for more in ((), ("scale-reward",))]
    bare, scaled = (evaluate(Choosing(), env, 0, Clock(1)) for env in envs)
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


class Astray(Dilemma):
    """What an agent sees is one more than there is, from its second step on."""

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, *rest = super().step(actions)
        return ({**obs, "column": 3 if self.at > 1 else 0}, *rest)  # type: ignore[return-value]


@pytest.mark.parametrize("make", [lambda: Parallel(Astray()), lambda: Turns(parallel_to_aec(Astray()))])
def test_an_observation_that_its_space_does_not_have_is_named_with_agent_and_step(make: Any) -> None:
    env = Agents(make, 2, "d", "")
    said = r"^d, agent column, step 2 of its episode: the observation is 3, and Discrete\(3\) has 0 to 2; let obs"
    with pytest.raises(BadEnv, match=said):
        walked(env, env.reset(0), 5)


class Wrong(Paired):
    """The second step of the second agent gives what the test says."""

    def __init__(self, obs: Any, reward: Any) -> None:
        super().__init__()
        self.bad = obs, reward

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        obs, rewards, *rest = super().step(actions)
        if self.at == 2:
            obs, rewards = {**obs, "column": self.bad[0]}, {**rewards, "column": self.bad[1]}
        return (obs, rewards, *rest)


@pytest.mark.parametrize("form", [Parallel, lambda world: Turns(parallel_to_aec(world))])
@pytest.mark.parametrize(
    ("obs", "reward", "said"),
    [
        (np.float32([0, np.nan]), 1.0, r"an observation is not a number \(NaN\)"),
        (np.float32(0.5), 1.0, r"the observation has shape \(\), its observation space says \(2,\)"),
        (np.zeros(3, np.float32), 1.0, r"the observation has shape \(3,\), its observation space says \(2,\)"),
        (np.zeros(2, np.float32), "much", "the reward is 'much'; give a number"),
    ],
)
def test_bad_values_are_named_with_agent_and_step(form: Any, obs: Any, reward: Any, said: str) -> None:
    if form is not Parallel and reward == "much":
        pytest.skip("PettingZoo's own conversion adds rewards up")
    env = Agents(lambda: form(Wrong(obs, reward)), 1, "d", "")
    with pytest.raises(BadEnv, match=f"^d, agent column, step 2 of its episode: {said}"):
        walked(env, env.reset(0), 5)


def test_worlds_are_seeded_apart_and_reproducibly() -> None:
    env = Agents(lambda: Parallel(Leaving()), 3, "leaving")
    first = env.reset(1).obs[:, 2].copy()
    assert len(set(first.tolist())) > 1
    assert first.tolist() == env.reset(1).obs[:, 2].tolist()
    assert first.tolist() != env.reset(2).obs[:, 2].tolist()


@pytest.mark.parametrize("world", WORLDS)
def test_worlds_go_on_to_the_same_bits(world: str) -> None:
    env = make_env(f"pettingzoo/{world}", 2)
    assert env.spec.inexact == ""
    other, agent = make_env(f"pettingzoo/{world}", 2), RandomAgent(env.spec.action, Seeds(0))
    now, clock = env.reset(4), Clock(1)
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
def test_masks_reach_agents_and_nobody_breaks_a_rule(game: str) -> None:
    env = make_env(f"pettingzoo/classic.{game}", 3)
    agent = RandomAgent(env.spec.action, Seeds(0))
    found = evaluate(agent, env, 1, Clock(1))
    assert len(found.returns) == 6
    assert found.episodes == 3
    assert all(a + b == 0 for a, b in zip(found.returns[::2], found.returns[1::2], strict=True))
    assert min(found.lengths) >= 2  # an illegal move would end a game at once


def test_an_evaluation_tells_agents_apart() -> None:
    found = Evaluation((1.0, 4.0, 3.0, 8.0), (2, 2, 2, 2), (), (), ("a", "b", "a", "b"))
    assert found.by_agent == {"a": 2.0, "b": 6.0}
    assert (found.episodes, found.mean) == (2, 4.0)
    assert found.sem == pytest.approx(np.std([2.5, 5.5], ddof=1) / np.sqrt(2))


class Remembering(Choosing):
    """Notes how many observations of its episode each row has in its memory, and acts by that number."""

    def initial(self, num_envs: int) -> Any:
        return {"seen": np.zeros(num_envs, np.int64)}

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Clock, explore: bool = True) -> Act:
        seen = np.where(is_first, 0, recurrent_state["seen"]) + 1
        self.log.append(seen.tolist())
        return Act(seen % 2, {"seen": seen}, {})


def test_who_waits_remembers_an_observation_once_whoever_lets_it_play() -> None:
    """In training, in evaluations and in recordings, which otherwise store what was not done."""

    def turns() -> Agents:
        return Agents(lambda: Turns(in_turns(50)), 1, "d")

    trained, evaluated, recorded = Remembering(), Remembering(), Remembering()
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


def test_a_recording_holds_the_actions_that_were_taken() -> None:
    """A row that waits is asked at each step, and would do something else each time."""
    world = Agents(lambda: Turns(parallel_to_aec(Paid(50))), 1, "paid")
    arrays, _ = _play_episodes(Choosing(), world, 3, Clock(1), 30, explore=True)
    assert set(arrays["rewards"].tolist()) == {0.0, 1.0}
    np.testing.assert_array_equal(arrays["actions"], arrays["rewards"])


def test_missing_packages_of_an_environment_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pettingzoo.classic.leduc_holdem_v4", raising=False)
    for name in [name for name in sys.modules if name.startswith(("rlcard", "pettingzoo.classic.rlcard_envs"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rlcard", None)
    with pytest.raises(MissingPackage, match=r"install it: python -m pip install rlcard$"):
        make_env("pettingzoo/classic.leduc_holdem", 1)


def test_a_world_of_ones_own_may_lie_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_worlds").mkdir()
    (tmp_path / "my_worlds" / "dilemma_v0.py").write_text("from tests.envs.games import parallel_env\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_env("pettingzoo/my_worlds.dilemma", 1).spec.agents == ("row", "column")


def test_a_world_of_ones_own_need_not_lie_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lone_dilemma.py").write_text("from tests.envs.games import parallel_env\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make_env("pettingzoo/lone_dilemma", 1).spec.agents == ("row", "column")
    for name in ("no_such_world", "classic"):
        with pytest.raises(UnknownEnv, match=f"'pettingzoo/{name}' names no module; write one such as"):
            make_env(f"pettingzoo/{name}", 1)


@pytest.mark.parametrize("package", ["pettingzoo", "mpe2"])
def test_missing_extras_are_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    world = "mpe2.simple_spread" if package == "mpe2" else "classic.tictactoe"
    with pytest.raises(MissingPackage, match=rf"'{package}[.a-z]*', .* pip install 'rlplug-envs\[multiagent\]'$"):
        make_env(f"pettingzoo/{world}", 1)


def test_wrong_names_are_answered_with_what_to_type() -> None:
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


def test_agents_with_different_spaces_have_a_part_of_their_own() -> None:
    """A speaker that sees the goal and says a letter, a listener that hears it and moves: beside PettingZoo itself."""
    from mpe2 import simple_speaker_listener_v4

    env = make_env("pettingzoo/mpe2.simple_speaker_listener", 1)
    assert env.spec.kinds == env.spec.agents == ("speaker_0", "listener_0")
    assert parts(env.spec.action)[1].columns == slice(1, 2)
    world = simple_speaker_listener_v4.parallel_env()
    seen, _ = world.reset(seed=row_seed(7, 0))
    now = env.reset(7)
    for said, moved in [(0, 3), (2, 1), (1, 4), (0, 0)]:
        for row, agent in enumerate(env.spec.agents):
            assert np.array_equal(now.obs[agent][row], np.float32(seen[agent]))
        # What a row says of the other's part is not asked for.
        now = env.step(np.array([[said, 2], [1, moved]], np.float32))
        seen, rewards, *_ = world.step({"speaker_0": said, "listener_0": moved})
        assert now.reward.tolist() == [np.float32(rewards[agent]) for agent in env.spec.agents]


def test_worlds_with_different_agents_go_on_to_the_same_bits() -> None:
    env, other = (make_env("pettingzoo/mpe2.simple_speaker_listener", 2) for _ in range(2))
    env.reset(4)
    actions = np.random.default_rng(0).integers(0, 3, (40, 4, 2)).astype(np.float32)
    for action in actions[:17]:
        env.step(action)
    other.load_state_dict(env.state_dict())
    for action in actions[17:]:
        now, then = env.step(action), other.step(action)
        assert str(now.obs) == str(then.obs)
        assert np.array_equal(now.reward, then.reward)
        assert now.episodes == then.episodes


def test_one_policy_for_different_agents_is_refused_with_the_way_out() -> None:
    spec = make_env("pettingzoo/mpe2.simple_speaker_listener", 1).spec
    with pytest.raises(
        UsageError, match="different spaces, and Algorithm trains one network for all of them; use independent"
    ):
        Algorithm(spec, None, Context(Seeds(0)))


def against_chance(worlds: int) -> RandomOpponents:
    return RandomOpponents(make_env("pettingzoo/classic.connect_four", worlds))


def test_opponents_take_every_seat_but_one_and_keep_to_the_rules() -> None:
    env = against_chance(4)
    assert (env.spec.num_envs, env.spec.agents) == (4, ())
    found = evaluate(RandomAgent(env.spec.action, Seeds(0)), env, 1, Clock(1))
    assert sorted(set(found.returns)) in ([-1.0, 1.0], [-1.0], [1.0])
    assert min(found.lengths) >= 2
    assert found.episodes == 4


def test_a_game_against_opponents_goes_on_to_the_same_bits() -> None:
    env, other, agent = against_chance(3), against_chance(3), RandomAgent(against_chance(3).spec.action, Seeds(0))
    now, clock = env.reset(4), Clock(1)
    for _ in range(13):
        now = env.step(agent.act(now.obs, now.is_first, None, clock).action)
    other.load_state_dict(env.state_dict())
    for _ in range(40):
        action = agent.act(now.obs, now.is_first, None, clock).action
        now, then = env.step(action), other.step(action)
        assert str(now.obs) == str(then.obs)
        assert np.array_equal(now.reward, then.reward)
        assert now.episodes == then.episodes


def test_opponents_need_others() -> None:
    with pytest.raises(UsageError, match="does not have several agents with the same spaces"):
        RandomOpponents(make_env("CartPole-v1", 1))


MEMORIES = ("frame-stack:frames=3", "time-feature:steps=20", "normalize-obs")


def around(env: Env, *words: str) -> Env:
    return wrap_env(env, [WrapperSpec.parse(word) for word in words])


def walked(env: Env, now: Timestep, steps: int, seed: int = 0) -> list[Timestep]:
    """The timesteps of random actions, with observations that later ones leave alone."""
    generator, found = np.random.default_rng(seed), [now]
    for _ in range(steps):
        now.obs = np.array(now.obs)
        now = env.step(generator.integers(2, size=env.spec.num_envs))
        found.append(now)
    return found


@pytest.mark.parametrize("words", MEMORIES)
def test_an_agent_that_waits_for_its_turn_still_sees_what_it_acted_on(words: str) -> None:
    env = around(Agents(lambda: Turns(in_turns(4)), 2, "d"), "flatten", words)
    seen, waited = walked(env, env.reset(3), 60), 0
    for before, now in pairwise(seen):
        assert now.turn is not None
        waits = ~(now.turn | now.valid)
        waited += int(waits.sum())
        assert np.array_equal(now.obs[waits], before.obs[waits])
    assert waited > 50


def test_a_stack_holds_the_observations_of_an_agents_own_turns() -> None:
    """Beside a walk through the rows, one by one."""
    bare = Agents(lambda: Turns(in_turns(4)), 2, "d")
    plain = around(bare, "flatten")
    stacked = around(Agents(lambda: Turns(in_turns(4)), 2, "d"), "flatten", "frame-stack:frames=3")
    history: dict[int, list[Any]] = {}
    for one, now in zip(walked(plain, plain.reset(3), 40), walked(stacked, stacked.reset(3), 40), strict=True):
        assert one.turn is not None
        for row in np.flatnonzero(one.turn):
            history[row] = [*([] if one.is_first[row] else history[row]), one.obs[row]]
            frames = [history[row][0]] * 3 + history[row][1:]
            assert np.array_equal(now.obs[row], np.concatenate(frames[-3:]))


def test_a_sticky_action_is_what_an_agent_did_in_its_own_turn() -> None:
    """Repeated for ever: what each did first in a world it does until that ends, whatever it chooses while it waits."""
    env = around(Agents(lambda: Turns(in_turns(6)), 2, "d"), "sticky-actions:probability=1")
    now, did = env.reset(3), np.full(4, -1)
    generator, repeated = np.random.default_rng(0), 0
    for _ in range(60):
        assert now.turn is not None
        did[now.is_first] = -1
        chosen, turn = generator.integers(0, 2, 4), now.turn.copy()
        now = env.step(chosen)
        repeated += int((turn & (did >= 0)).sum())
        did = np.where(turn & (did < 0), chosen, did)
        assert (env.state_dict()["taken"][turn] == did[turn]).all()
    assert repeated > 60


@pytest.mark.parametrize("words", MEMORIES)
@pytest.mark.parametrize("make", [lambda: Turns(in_turns(4)), lambda: Parallel(Leaving())])
def test_observations_of_waiting_agents_resume_to_the_same_bits(make: Any, words: str) -> None:
    env, other = (around(Agents(make, 2, "d"), "flatten", words) for _ in range(2))
    walked(env, env.reset(3), 9)
    other.load_state_dict(env.state_dict())
    zeros = np.zeros(env.spec.num_envs, np.int64)
    for one, same in zip(*(walked(each, each.step(zeros), 20) for each in (env, other)), strict=True):
        assert np.array_equal(one.obs, same.obs)


def test_moments_are_of_agents_that_are_there() -> None:
    bare = Agents(lambda: Parallel(Leaving()), 2, "d")
    env = around(Agents(lambda: Parallel(Leaving()), 2, "d"), "normalize-obs")
    seen = walked(bare, bare.reset(3), 30)
    walked(env, env.reset(3), 30)
    there = np.concatenate([now.obs[now.valid | now.is_first] for now in seen])
    assert complete(env).learned()["count"] == len(there) < 31 * 6
    assert np.allclose(complete(env).learned()["mean"], there.mean(0), atol=1e-5)


class Returning(ParallelEnv[str, Any, int]):
    """Two agents for eight steps; the second ends after two, comes back after the fourth, and ends after six again."""

    metadata = {"name": "returning"}
    possible_agents = ["stays", "returns"]

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.at, self.agents = 0, list(self.possible_agents)
        return dict.fromkeys(self.agents, 0), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        self.at += 1
        over = {agent: self.at == 8 or (agent == "returns" and self.at in (2, 6)) for agent in actions}
        left = [] if self.at == 8 else [agent for agent in actions if not over[agent]]
        self.agents = list(self.possible_agents) if self.at == 4 else left
        told = {**dict.fromkeys(self.agents, False), **over}
        flags = dict.fromkeys(told, False)
        return dict.fromkeys(told, self.at), dict.fromkeys(told, 1.0), told, flags, {agent: {} for agent in told}


def test_an_agent_that_comes_back_has_an_episode_for_each_time() -> None:
    env = Agents(lambda: Parallel(Returning()), 1, "returning", "a test")
    for _ in range(2):
        env.reset(0)
        found = [one for _ in range(8) for one in env.step(np.zeros(2, np.int64)).episodes]
        assert [(one.agent, one.total, one.length) for one in found] == [
            ("returns", 2.0, 2), ("returns", 2.0, 2), ("stays", 8.0, 8)
        ]  # fmt: skip


@pytest.mark.parametrize("world", ["mpe2.simple_speaker_listener_v4", "classic.tictactoe"])
def test_worlds_hold_to_the_contract_of_environments(world: str) -> None:
    told = {check.name: check.outcome().status for check in env_checks(f"pettingzoo/{world}")}
    on_device = {name for name in told if name.startswith("env-device")}  # their observations are arrays
    assert {name for name, status in told.items() if status != "passed"} == on_device, told


def priced(kind: type[Any]) -> Any:
    """A world with the info `price` of each agent: a copy of its reward."""

    class Priced(kind):  # type: ignore[misc]
        def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
            *found, _ = super().step(actions)
            return (*found, {agent: {"price": reward} for agent, reward in found[1].items()})

    return Priced()


class Wants:
    signals = ("price",)


WORLDS_WITH_PRICES: dict[str, Any] = {
    "leaving": lambda: Agents(lambda: Parallel(priced(Leaving)), 2, "w", ""),
    "together": lambda: Agents(lambda: Parallel(priced(Dilemma)), 2, "w", ""),
    "turns": lambda: Agents(lambda: Turns(parallel_to_aec(priced(Dilemma))), 2, "w", ""),
    "opponents": lambda: RandomOpponents(Agents(lambda: Parallel(priced(Leaving)), 2, "w", "")),
    "wrapped": lambda: wrap_env(WORLDS_WITH_PRICES["leaving"](), [WrapperSpec.parse("frame-stack")]),
}


@pytest.mark.parametrize("world", WORLDS_WITH_PRICES)
def test_each_agents_transition_has_the_signal_of_its_own_info(world: str) -> None:
    env = WORLDS_WITH_PRICES[world]()
    actor = Actor(env, Wants(), Choosing(), None, Clock(10**9))  # type: ignore[arg-type]
    actor.reset(0)
    seen = 0
    for _ in range(40):
        step = actor.step()
        assert step.extras["price"][step.valid].tolist() == step.reward[step.valid].tolist()
        assert not step.extras["price"][~step.valid].any()
        seen += int(step.valid.sum())
    assert seen > 40


def test_ataris_worlds_get_the_roms_of_ale_py(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pettingzoo.atari.pong_v3")
    if find_spec("ale_py"):
        assert (Path(str(_roms("pettingzoo/atari.pong", module)["auto_rom_install_path"])) / "pong.bin").is_file()
    assert _roms("pettingzoo/butterfly.pong", ModuleType("pettingzoo.butterfly.pong_v3")) == {}
    monkeypatch.setattr("rlplug_envs.families.pettingzoo.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="needs the ROMs in the package ale-py; install it: python -m pip install"):
        _roms("pettingzoo/atari.pong", module)

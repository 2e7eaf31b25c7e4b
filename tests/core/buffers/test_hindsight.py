"""Hindsight replay: goals, rewards and discounts against those of the recorded episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.buffers.hindsight import HindsightReplay, goals_of
from rlplug_core.buffers.make import PriorityOptions, replay_buffer
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.testing.goals import Bits, reached, reward
from rlplug_core.types import NO_EXTRAS, Array, Goals, Spec, Step, tree_map
from tests.tables import for_each

GAMMA = 0.9
K = 3
ROWS = 3
PACE = ReplaySchedule(64, 1, 1, 2 * ROWS)
#: A step of one row: the goal achieved after it, its episode, and whether it terminated.
Moment = tuple[Array, int, bool]


class Trap(Bits):
    """Bits in which an episode also ends if the first three are on."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, truncated = super().move(action)
        return reward, terminated | self.state["bits"][:, :3].all(1), truncated


class Play:
    """Random steps for a buffer, and each moment by its number `time * ROWS + row` for a reference."""

    def __init__(self, seed: int = 1, env: type[Bits] = Bits) -> None:
        self.env = env(ROWS)
        self.generator = np.random.default_rng(seed)
        self.now = self.env.reset(seed)
        self.moments: dict[int, Moment] = {}
        self.episode = list(range(ROWS))
        self.time = 0

    def step(self, absent: Array | None = None) -> Step:
        before = tree_map(np.copy, self.now.obs)
        action = self.generator.integers(0, Bits.bits, ROWS)
        self.now = now = self.env.step(action)
        for row in range(ROWS):
            achieved = now.final_obs["achieved_goal"][row].copy()
            self.moments[self.time * ROWS + row] = achieved, self.episode[row], bool(now.terminated[row])
            if now.terminated[row] or now.truncated[row]:
                self.episode[row] += ROWS
        self.time += 1
        valid = now.valid if absent is None else ~absent
        return Step(
            before,
            action,
            now.reward.copy(),
            tree_map(np.copy, now.final_obs),
            now.terminated,
            now.truncated,
            now.is_first,
            valid,
            now.ended,
            NO_EXTRAS,
            None,
        )

    def later(self, number: int) -> list[Array]:
        """Return the goals that the episode of this moment achieved from this step on."""
        episode = self.moments[number][1]
        return [goal for other, (goal, own, _) in self.moments.items() if other >= number and own == episode]


def never(achieved: Array, desired: Array) -> Array:
    """Return False: no goal ends an episode, as in gymnasium-robotics."""
    return np.zeros(len(achieved), np.bool_)


def buffer_of(slots: int, k: int = K, ends: Callable[[Array, Array], Array] = reached) -> HindsightReplay:
    return HindsightReplay(Goals(reward, ends), k, slots * ROWS, PACE, GAMMA, Seeds(5))


def count_other_goals(play: Play, batch: Any, plain: Any, ends: bool = True) -> int:
    """Check that each transition has its own goal or a later one, and count the later ones."""
    others = 0
    for index, number in enumerate(batch.index.tolist()):
        goal = batch.obs["desired_goal"][index].numpy()
        own = plain.obs["desired_goal"][index].numpy()
        achieved = batch.next_obs["achieved_goal"][index].numpy()
        assert (batch.next_obs["desired_goal"][index].numpy() == goal).all()
        assert (achieved == play.moments[number][0]).all()
        assert float(batch.reward[index]) == (0 if (achieved == goal).all() else -1)
        over = (ends and (achieved == goal).all()) or play.moments[number][2]
        assert float(batch.discount[index]) == pytest.approx(0 if over else GAMMA)
        for name in ("observation", "achieved_goal"):
            assert (batch.obs[name][index] == plain.obs[name][index]).all()
        if not (goal == own).all():
            others += 1
            assert any((goal == later).all() for later in play.later(number))
    return others


@for_each("env, ends", [(Bits, reached), (Trap, reached), (Trap, never)])
@for_each("slots", [7, 25, 200])
def test_goals_are_those_achieved_later_in_the_episode(slots: int, env: type[Bits], ends: Any) -> None:
    """In episodes that succeed, fail, are truncated, are unfinished, or cross the end of the ring."""
    play = Play(env=env)
    buffer = buffer_of(slots, ends=ends)
    others = 0
    drawn = 0
    for time in range(120):
        buffer.add(play.step())
        if time > 2 and time % 4 == 0:
            index = buffer.sample(64)
            others += count_other_goals(play, buffer.gather(index), plain(buffer, index), ends is reached)
            drawn += 64
    assert others / drawn == pytest.approx(K / (K + 1), abs=0.05)


def plain(buffer: HindsightReplay, index: Array) -> Any:
    """Return the same transitions with their own goals."""
    share = buffer.share
    buffer.share = -1.0
    state = buffer.generator.bit_generator.state
    found = buffer.gather(index)
    buffer.share = share
    buffer.generator.bit_generator.state = state
    return found


def test_later_goals_are_equally_likely() -> None:
    play = Play(2)
    buffer = buffer_of(100, k=10**9)
    for _ in range(30):
        buffer.add(play.step())
    number = next(n for n in range(60) if len(play.later(n)) == 5)
    batch = buffer.gather(np.full(8_000, number))
    goals, counts = np.unique(batch.obs["desired_goal"].numpy(), axis=0, return_counts=True)
    expected = np.array([sum((goal == later).all() for later in play.later(number)) for goal in goals])
    assert counts / counts.sum() == pytest.approx(expected / 5, abs=0.03)


def test_episodes_survive_resume_and_restart() -> None:
    play, buffer = Play(3), buffer_of(20)
    for _ in range(33):
        buffer.add(play.step())
    resumed = buffer_of(20)
    resumed.load_state_dict(buffer.state_dict())
    assert (resumed.starts == buffer.starts).all()
    assert (resumed.ends == buffer.ends).all()
    expected, found = (replay.draw(64, Clock(1)) for replay in (buffer, resumed))
    assert (expected.obs["desired_goal"] == found.obs["desired_goal"]).all()
    buffer.restart()
    newest = (buffer.count - 1) * ROWS + np.arange(ROWS)
    assert (buffer.ends[newest % buffer.data.total] == newest).all()  # type: ignore[union-attr]
    assert (buffer.starts == newest + ROWS).all()


def test_resume_in_the_first_episode_keeps_its_start() -> None:
    play, buffer = Play(3), buffer_of(20)
    buffer.add(play.step())
    assert not buffer.data.ended[0].any()  # type: ignore[union-attr]
    resumed = buffer_of(20)
    resumed.load_state_dict(buffer.state_dict())
    assert (resumed.starts == buffer.starts).all()
    for _ in range(12):
        step = play.step()
        buffer.add(step)
        resumed.add(step)
    assert (resumed.ends == buffer.ends).all()


def test_gather_does_not_change_stored_goals() -> None:
    play, buffer = Play(4), buffer_of(30)
    for _ in range(30):
        buffer.add(play.step())
    index = np.arange(29 * ROWS)
    before = plain(buffer, index)
    buffer.gather(index)
    assert (plain(buffer, index).obs["desired_goal"] == before.obs["desired_goal"]).all()


def test_absent_rows_give_no_goals() -> None:
    """A step's successor is the next observation of its row that is valid."""
    play = Play(5)
    buffer = buffer_of(60, k=10**9)
    for time in range(40):
        absent = np.arange(ROWS) * (time % 3 == 1) == 1
        step = play.step(absent)
        step.obs["achieved_goal"][absent] = 0.5
        buffer.add(step)
    index = np.array([time * ROWS + 1 for time in range(38) if time % 3 != 1])
    batch = buffer.gather(np.repeat(index, 50))
    assert not (batch.obs["desired_goal"] == 0.5).any()
    assert not (batch.next_obs["achieved_goal"] == 0.5).any()


def test_goals_without_an_end_do_not_change_discounts() -> None:
    play = Play(6)
    buffer = HindsightReplay(Goals(reward), 10**9, 100, PACE, GAMMA, Seeds(5))
    for _ in range(30):
        buffer.add(play.step())
    index = np.arange(25 * ROWS)
    assert (buffer.gather(index).discount == plain(buffer, index).discount).all()


def make(**options: Any) -> Any:
    given = {"n_step": 1, "gamma": GAMMA, "seeds": Seeds(1), "device": None, "her": 4, "spec": Bits(1).spec}
    return replay_buffer(100, PACE, **{**given, **options})


def test_inconsistent_hindsight_options_raise() -> None:
    assert isinstance(make(), HindsightReplay)
    with pytest.raises(UsageError, match="leave n_step at 1"):
        make(n_step=2)
    with pytest.raises(UsageError, match="do not use priorities or joint transitions"):
        make(priority=PriorityOptions(alpha=0.5))
    plain_spec = Spec(spaces.Box(0, 1, (2,)), spaces.Discrete(2), 1, "Plain-v0")
    with pytest.raises(UsageError, match=r"Plain-v0 has none.*compute_reward"):
        make(spec=plain_spec)
    with pytest.raises(UsageError, match="her replays other goals"):
        goals_of(Spec(Bits.obs, Bits.action, 1, "Rewardless"))

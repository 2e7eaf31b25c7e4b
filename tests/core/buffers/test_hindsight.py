"""Hindsight replay against walking through the episodes: which goals are given, and what follows from them."""

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

GAMMA, K, ROWS = 0.9, 3, 3
PACE = ReplaySchedule(64, 1, 1, 2 * ROWS)
#: One moment of one row: what was achieved after it, the episode it belongs to, and whether the task ended there.
Moment = tuple[Array, int, bool]


class Trap(Bits):
    """Bits of which three may never be on together, whatever the goal is."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        paid, there, cut = super().move(action)
        return paid, there | self.state["bits"][:, :3].all(1), cut


class Play:
    """Random play: steps for a buffer, and for a reference every moment by its number `time * ROWS + row`."""

    def __init__(self, seed: int = 1, env: type[Bits] = Bits) -> None:
        self.env, self.generator = env(ROWS), np.random.default_rng(seed)
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
            before, action, now.reward.copy(), tree_map(np.copy, now.final_obs), now.terminated, now.truncated,
            now.is_first, valid, now.ended, NO_EXTRAS, None,
        )  # fmt: skip

    def later(self, number: int) -> list[Array]:
        """What the episode of this moment achieved from then on, slowly."""
        episode = self.moments[number][1]
        return [goal for other, (goal, mine, _) in self.moments.items() if other >= number and mine == episode]


def never(achieved: Array, desired: Array) -> Array:
    """Goals end nothing, as in gymnasium-robotics."""
    return np.zeros(len(achieved), np.bool_)


def buffer_of(slots: int, k: int = K, ends: Callable[[Array, Array], Array] = reached) -> HindsightReplay:
    return HindsightReplay(Goals(reward, ends), k, slots * ROWS, PACE, GAMMA, Seeds(5))


def assert_right(play: Play, batch: Any, plain: Any, ends: bool = True) -> int:
    """Each transition has its own goal or a later one, with what follows from it; returns how many have another."""
    others = 0
    for place, number in enumerate(batch.index.tolist()):
        goal, own = batch.obs["desired_goal"][place].numpy(), plain.obs["desired_goal"][place].numpy()
        achieved = batch.next_obs["achieved_goal"][place].numpy()
        assert (batch.next_obs["desired_goal"][place].numpy() == goal).all()
        assert (achieved == play.moments[number][0]).all()
        assert float(batch.reward[place]) == (0 if (achieved == goal).all() else -1)
        over = (ends and (achieved == goal).all()) or play.moments[number][2]
        assert float(batch.discount[place]) == pytest.approx(0 if over else GAMMA)
        for name in ("observation", "achieved_goal"):
            assert (batch.obs[name][place] == plain.obs[name][place]).all()
        if not (goal == own).all():
            others += 1
            assert any((goal == later).all() for later in play.later(number))
    return others


@for_each("env, ends", [(Bits, reached), (Trap, reached), (Trap, never)])
@for_each("slots", [7, 25, 200])
def test_every_goal_was_reached_later_in_the_episode(slots: int, env: type[Bits], ends: Any) -> None:
    """Episodes that end early, that fail, that are cut, that still run, that the ring's seam cuts in two."""
    play, buffer, others, drawn = Play(env=env), buffer_of(slots, ends=ends), 0, 0
    for time in range(120):
        buffer.add(play.step())
        if time > 2 and time % 4 == 0:
            index = buffer.sample(64)
            others += assert_right(play, buffer.gather(index), plain(buffer, index), ends is reached)
            drawn += 64
    assert others / drawn == pytest.approx(K / (K + 1), abs=0.05)


def plain(buffer: HindsightReplay, index: Array) -> Any:
    """The same transitions with their own goals."""
    share, buffer.share = buffer.share, -1.0
    state = buffer.generator.bit_generator.state
    found = buffer.gather(index)
    buffer.share, buffer.generator.bit_generator.state = share, state
    return found


def test_each_later_moment_is_as_likely() -> None:
    play, buffer = Play(2), buffer_of(100, k=10**9)
    for _ in range(30):
        buffer.add(play.step())
    number = next(n for n in range(60) if len(play.later(n)) == 5)
    batch = buffer.gather(np.full(8_000, number))
    goals, counts = np.unique(batch.obs["desired_goal"].numpy(), axis=0, return_counts=True)
    expected = np.array([sum((goal == later).all() for later in play.later(number)) for goal in goals])
    assert counts / counts.sum() == pytest.approx(expected / 5, abs=0.03)


def test_a_restored_buffer_and_one_that_restarts_know_their_episodes() -> None:
    play, buffer = Play(3), buffer_of(20)
    for _ in range(33):
        buffer.add(play.step())
    other = buffer_of(20)
    other.load_state_dict(buffer.state_dict())
    assert (other.begins == buffer.begins).all()
    assert (other.ends == buffer.ends).all()
    one, two = (each.draw(64, Clock(1)) for each in (buffer, other))
    assert (one.obs["desired_goal"] == two.obs["desired_goal"]).all()
    buffer.restart()
    newest = (buffer.count - 1) * ROWS + np.arange(ROWS)
    assert (buffer.ends[newest % buffer.data.total] == newest).all()  # type: ignore[union-attr]
    assert (buffer.begins == newest + ROWS).all()


def test_a_buffer_restored_in_its_first_episode_knows_where_each_row_began() -> None:
    play, buffer = Play(3), buffer_of(20)
    buffer.add(play.step())
    assert not buffer.data.ended[0].any()  # type: ignore[union-attr]
    other = buffer_of(20)
    other.load_state_dict(buffer.state_dict())
    assert (other.begins == buffer.begins).all()
    for _ in range(12):
        step = play.step()
        buffer.add(step)
        other.add(step)
    assert (other.ends == buffer.ends).all()


def test_stored_values_stay_unchanged() -> None:
    play, buffer = Play(4), buffer_of(30)
    for _ in range(30):
        buffer.add(play.step())
    index = np.arange(29 * ROWS)
    before = plain(buffer, index)
    buffer.gather(index)
    assert (plain(buffer, index).obs["desired_goal"] == before.obs["desired_goal"]).all()


def test_absent_rows_give_no_goal() -> None:
    """What an absent row shows was not achieved; a step leads to what its row saw when it was there again."""
    play, buffer = Play(5), buffer_of(60, k=10**9)
    for time in range(40):
        absent = np.arange(ROWS) * (time % 3 == 1) == 1
        step = play.step(absent)
        step.obs["achieved_goal"][absent] = 0.5
        buffer.add(step)
    index = np.array([time * ROWS + 1 for time in range(38) if time % 3 != 1])
    batch = buffer.gather(np.repeat(index, 50))
    assert not (batch.obs["desired_goal"] == 0.5).any()
    assert not (batch.next_obs["achieved_goal"] == 0.5).any()


def test_rewards_without_an_end_leave_discounts() -> None:
    play = Play(6)
    buffer = HindsightReplay(Goals(reward), 10**9, 100, PACE, GAMMA, Seeds(5))
    for _ in range(30):
        buffer.add(play.step())
    index = np.arange(25 * ROWS)
    assert (buffer.gather(index).discount == plain(buffer, index).discount).all()


def make(**options: Any) -> Any:
    given = {"n_step": 1, "gamma": GAMMA, "seeds": Seeds(1), "device": None, "her": 4, "spec": Bits(1).spec}
    return replay_buffer(100, PACE, **{**given, **options})


def test_impossible_hindsight_options_are_refused() -> None:
    assert isinstance(make(), HindsightReplay)
    with pytest.raises(UsageError, match="leave n_step at 1"):
        make(n_step=2)
    with pytest.raises(UsageError, match="priorities and joint transitions out"):
        make(priority=PriorityOptions(alpha=0.5))
    without = Spec(spaces.Box(0, 1, (2,)), spaces.Discrete(2), 1, "Plain-v0")
    with pytest.raises(UsageError, match=r"Plain-v0 has none.*compute_reward"):
        make(spec=without)
    with pytest.raises(UsageError, match="her replays other goals"):
        goals_of(Spec(Bits.obs, Bits.action, 1, "Rewardless"))

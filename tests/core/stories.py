"""Random stories: what one row of an environment after the other goes through, as steps and as the truth about them.

Every observation has a number of its own, so that a test can say which observation a buffer handed out. The arrays of a
step are overwritten two steps later, as an environment that reuses its memory would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.clock import Clock
from rlplug_core.types import Array, Step
from tests.core.fakes import assert_same, stored
from tests.reference.returns import Moment

B = TypeVar("B", bound=ReplayBuffer)

GO, TERMINATE, TRUNCATE, ABSENT = range(4)
KINDS = st.sampled_from([GO, GO, GO, GO, TERMINATE, TRUNCATE, ABSENT])


@dataclass(frozen=True)
class Story:
    """`moments[row][time]`, and the numbers of the observations before and after the last step."""

    moments: list[list[Moment]]

    @property
    def num_envs(self) -> int:
        return len(self.moments)

    def __len__(self) -> int:
        return len(self.moments[0])

    def steps(self) -> Iterator[Step]:
        """The story as an environment would tell it, in memory that it reuses."""
        handed: list[Step] = []
        for time in range(len(self)):
            handed.append(self._step(time))
            if len(handed) > 2:
                scribble(handed.pop(0))
            yield handed[-1]

    def _step(self, time: int) -> Step:
        now = [row[time] for row in self.moments]
        terminated = np.array([moment.terminated for moment in now])
        truncated = np.array([moment.truncated for moment in now])
        return Step(
            obs=np.array([[moment.obs] for moment in now], dtype=np.float32),
            action=np.array([moment.obs % 7 for moment in now]),
            reward=np.array([moment.reward for moment in now], dtype=np.float32),
            next_obs=np.array([[moment.next_obs] for moment in now], dtype=np.float32),
            terminated=terminated,
            truncated=truncated,
            is_first=np.zeros(self.num_envs, dtype=bool),
            valid=np.array([moment.valid for moment in now]),
            ended=bool((terminated | truncated).any()),
            extras={"log_prob": np.array([-moment.obs / 10 for moment in now], dtype=np.float32)},
            recurrent_state=None,
        )


def scribble(step: Step) -> None:
    """Overwrite everything that a step holds."""
    for array in (step.obs, step.next_obs, step.reward, step.extras["log_prob"]):
        array.fill(np.nan)
    for flags in (step.terminated, step.truncated, step.is_first, step.valid):
        flags.fill(True)
    step.action.fill(10**9)


@st.composite
def stories(
    draw: st.DrawFn, length: st.SearchStrategy[int], absent: bool = True, next_step: bool | None = None
) -> Story:
    """Stories of 1 to 3 rows; with `next_step`, a row that holds no transition follows the end of every episode."""
    times, rows = draw(length), draw(st.integers(1, 3))
    resets = draw(st.booleans()) if next_step is None else next_step
    kinds = draw(st.lists(st.lists(KINDS, min_size=times, max_size=times), min_size=rows, max_size=rows))
    numbers = iter(range(1, 10**6))
    rewards = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Story([_row(row, numbers, rewards, resets, absent) for row in kinds])


def _row(
    kinds: list[int], numbers: Iterator[int], rewards: np.random.Generator, resets: bool, absent: bool
) -> list[Moment]:
    row: list[Moment] = []
    now, resetting = next(numbers), False
    for kind in kinds:
        after = next(numbers)
        reward = float(np.float32(rewards.normal()))
        if resetting:
            row.append(Moment(now, 0.0, after, False, False, False))
            resetting = False
        elif kind == ABSENT and absent:
            row.append(Moment(now, reward, after, False, False, False))
        else:
            over = kind in (TERMINATE, TRUNCATE)
            row.append(Moment(now, reward, after, kind == TERMINATE, kind == TRUNCATE, True))
            resetting = over and resets
            if over and not resets:
                after = next(numbers)  # SAME_STEP: the next observation opens an episode
        now = after
    return row


#: What two rows that hold no transition may say: their observation, reward, end and successor.
GARBAGE = [
    (50, 1e30, False, False, 60),
    (2, 0.0, True, False, 60),
    (2, 0.0, False, True, 60),
    (50, 0.0, True, False, 3),
]


def absent_between(
    cut: bool, obs: int = 2, reward: float = 0.0, terminated: bool = False, truncated: bool = False, next_obs: int = 3
) -> Story:
    """Two rows without a transition after the end of an episode, or with `cut` False in the middle of one."""
    absent = [Moment(obs + n, reward, next_obs + n, terminated, truncated, False) for n in range(2)]
    return Story([[Moment(1, 0.5, 2, False, cut, True), *absent, Moment(4, 0.25, 5, False, False, True)]])


def side_by_side(story: Story, move: int, make: Callable[[], B]) -> Iterator[tuple[B, B, Transitions, Transitions]]:
    """Two buffers through a story, the second stored and read before step `move`, and each pair of their batches.

    In the end their states have to be the same.
    """
    stay, moved, clock = make(), make(), Clock(1)
    for time, step in enumerate(story.steps()):
        if time == move:
            state = stored(moved.state_dict())
            moved = make()
            moved.load_state_dict(state)
        for buffer in (stay, moved):
            buffer.add(step)
        for one, other in zip(stay.batches(clock), moved.batches(clock), strict=True):
            yield stay, moved, one, other
    assert_same(stay.state_dict(), moved.state_dict())


def dictionary_step(time: int, num_envs: int = 2) -> Step:
    """A step of nested observations with a memory, truncated in row 0 at time 1."""
    obs = {"image": np.full((num_envs, 2, 2), time, np.uint8), "inner": {"place": np.arange(num_envs) + 10 * time}}
    after = {
        "image": np.full((num_envs, 2, 2), 100 + time, np.uint8),
        "inner": {"place": -np.arange(num_envs) - 10 * time},
    }
    never = np.zeros(num_envs, dtype=bool)
    truncated = np.array([time == 1, False])
    recurrent_state = {"h": np.full((num_envs, 3), time, np.float32)}
    action, reward = never.astype(np.int64), np.ones(num_envs, np.float32)
    return Step(obs, action, reward, after, never, truncated, never, ~never, time == 1, {}, recurrent_state)


def value(number: float | Array) -> Array:
    """A value for every observation, as far from regular as can be."""
    return np.sin(np.asarray(number, dtype=np.float64) * 12.9898) * 3


def critic(obs: Array) -> Array:
    """`value` as a critic sees it: [B, 1] to [B]."""
    return value(obs[:, 0]).astype(np.float32)

"""Random stories of the rows of an environment, as steps and as the truth about them.

Every observation has its own number, so that a test can tell which observation a buffer returned. The arrays of a
step are overwritten two steps later, as in an environment that reuses its memory.
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
from tests.core.fakes import assert_same, save_and_load
from tests.reference.returns import Moment

B = TypeVar("B", bound=ReplayBuffer)

GO, TERMINATE, TRUNCATE, ABSENT = range(4)
KINDS = st.sampled_from([GO, GO, GO, GO, TERMINATE, TRUNCATE, ABSENT])


@dataclass(frozen=True)
class Story:
    """The steps of each row: `moments[row][time]`."""

    moments: list[list[Moment]]

    @property
    def num_envs(self) -> int:
        return len(self.moments)

    def __len__(self) -> int:
        return len(self.moments[0])

    def steps(self) -> Iterator[Step]:
        """Yield the steps; the memory of each is overwritten two steps later."""
        steps: list[Step] = []
        for time in range(len(self)):
            steps.append(self._step(time))
            if len(steps) > 2:
                overwrite(steps.pop(0))
            yield steps[-1]

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


def overwrite(step: Step) -> None:
    """Overwrite all arrays of a step."""
    for array in (step.obs, step.next_obs, step.reward, step.extras["log_prob"]):
        array.fill(np.nan)
    for flags in (step.terminated, step.truncated, step.is_first, step.valid):
        flags.fill(True)
    step.action.fill(10**9)


@st.composite
def stories(
    draw: st.DrawFn, length: st.SearchStrategy[int], absent: bool = True, next_step: bool | None = None
) -> Story:
    """Draw stories of 1 to 3 rows; with `next_step`, a row without a transition follows the end of every episode."""
    times = draw(length)
    rows = draw(st.integers(1, 3))
    resets = draw(st.booleans()) if next_step is None else next_step
    kinds = draw(st.lists(st.lists(KINDS, min_size=times, max_size=times), min_size=rows, max_size=rows))
    numbers = iter(range(1, 10**6))
    rewards = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return Story([_row(row, numbers, rewards, resets, absent) for row in kinds])


def _row(
    kinds: list[int], numbers: Iterator[int], rewards: np.random.Generator, resets: bool, absent: bool
) -> list[Moment]:
    row: list[Moment] = []
    now = next(numbers)
    resetting = False
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
                after = next(numbers)  # SAME_STEP: the next observation starts an episode
        now = after
    return row


#: Values that two rows without a transition may have: observation, reward, ends and successor.
GARBAGE = [
    (50, 1e30, False, False, 60),
    (2, 0.0, True, False, 60),
    (2, 0.0, False, True, 60),
    (50, 0.0, True, False, 3),
]


def absent_between(
    cut: bool, obs: int = 2, reward: float = 0.0, terminated: bool = False, truncated: bool = False, next_obs: int = 3
) -> Story:
    """Return a story with two rows without a transition, after an episode or, with `cut` False, inside one."""
    absent = [Moment(obs + n, reward, next_obs + n, terminated, truncated, False) for n in range(2)]
    return Story([[Moment(1, 0.5, 2, False, cut, True), *absent, Moment(4, 0.25, 5, False, False, True)]])


def compare_after_load(
    story: Story, move: int, make: Callable[[], B]
) -> Iterator[tuple[B, B, Transitions, Transitions]]:
    """Yield two buffers and their batches during a story; the second is saved and loaded before step `move`.

    Asserts at the end that their states are equal.
    """
    stay = make()
    moved = make()
    clock = Clock(1)
    for time, step in enumerate(story.steps()):
        if time == move:
            state = save_and_load(moved.state_dict())
            moved = make()
            moved.load_state_dict(state)
        for buffer in (stay, moved):
            buffer.add(step)
        for expected, actual in zip(stay.batches(clock), moved.batches(clock), strict=True):
            yield stay, moved, expected, actual
    assert_same(stay.state_dict(), moved.state_dict())


def dictionary_step(time: int, num_envs: int = 2) -> Step:
    """Return a step with nested observations and a memory, truncated in row 0 at time 1."""
    obs = {"image": np.full((num_envs, 2, 2), time, np.uint8), "inner": {"place": np.arange(num_envs) + 10 * time}}
    after = {
        "image": np.full((num_envs, 2, 2), 100 + time, np.uint8),
        "inner": {"place": -np.arange(num_envs) - 10 * time},
    }
    never = np.zeros(num_envs, dtype=bool)
    truncated = np.array([time == 1, False])
    recurrent_state = {"h": np.full((num_envs, 3), time, np.float32)}
    action = never.astype(np.int64)
    reward = np.ones(num_envs, np.float32)
    return Step(obs, action, reward, after, never, truncated, never, ~never, time == 1, {}, recurrent_state)


def value(number: float | Array) -> Array:
    """Return an irregular value for each observation."""
    return np.sin(np.asarray(number, dtype=np.float64) * 12.9898) * 3


def critic(obs: Array) -> Array:
    """Return `value` of observations [B, 1] as [B]."""
    return value(obs[:, 0]).astype(np.float32)

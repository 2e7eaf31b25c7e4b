"""Hindsight experience replay: transitions are also replayed with goals that their episode reached later.

Andrychowicz et al., 2017, arXiv:1707.01495, with the strategy `future` of section 4.5.
"""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces

from rlplug_core.arrays import to_host
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.buffers.storage import Store, write_rows
from rlplug_core.config.schedules import Schedule
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Goals, Obs, Spec, State, Step

#: The end of an episode that has not ended yet.
RUNNING = -1


class HindsightReplay(ReplayBuffer):
    """Uniform replay of observations with goals; k of k + 1 sampled transitions get another goal (hindsight).

    The other goal is the achieved goal after the same or a later step of the episode, each equally likely. The reward
    is computed for the new goal. The transition is terminal if it reaches this goal, or if it was terminal before.
    Stored steps do not change.

    Args:
        goals: the rewards and terminations of other goals.
        k: other goals for each original one.
        capacity: number of steps to keep; this and all further arguments as in `ReplayBuffer`.
    """

    def __init__(
        self,
        goals: Goals,
        k: int,
        capacity: int,
        pace: ReplaySchedule,
        gamma: Schedule | float,
        seeds: Seeds,
        device: torch.device | None = None,
        store: Store = "memory",
    ) -> None:
        super().__init__(
            capacity, pace, n_step=1, gamma=gamma, seeds=seeds, device=device, store=store
        )
        self.goals = goals
        self.share = k / (k + 1)
        # [N] the number of the first step of each row's running episode.
        self.starts = np.zeros(0, np.int64)
        # [slots * N] the number of the step that ended each step's episode.
        self.ends = np.zeros(0, np.int64)

    def add(self, step: Step, source: int = 0) -> None:
        super().add(step, source)
        data = self.data
        assert data is not None
        if not len(self.ends):
            self.starts = np.arange(data.num_envs)
            self.ends = np.full(data.total, RUNNING)
        number = (data.count - 1) * data.num_envs
        self.ends[number % data.total : number % data.total + data.num_envs] = RUNNING
        if step.ended:
            for row in np.flatnonzero(data.ended[(data.count - 1) % data.slots]).tolist():
                self._end_episode(row, number + row)

    def _end_episode(self, row: int, last: int) -> None:
        """Record that the running episode of `row` ended with the step numbered `last`."""
        assert self.data is not None
        num_envs = self.data.num_envs
        total = self.data.total
        start = max(int(self.starts[row]), self.data.oldest * num_envs + row)
        self.ends[np.arange(start, last + 1, num_envs) % total] = last
        self.starts[row] = last + num_envs

    def look_up(self, index: Array) -> State:
        columns = super().look_up(index)
        rows = np.flatnonzero(self.generator.random(len(index)) < self.share)
        goal = self._draw_achieved_goals(index[rows])
        achieved = to_host(columns["next_obs"]["achieved_goal"])[rows]
        for obs in (columns["obs"], columns["next_obs"]):
            write_rows(obs["desired_goal"], rows, goal)
        columns["rest"]["reward"][rows] = self.goals.reward(achieved, goal)
        if self.goals.terminated is not None:
            # Terminations by a fall or at the original goal remain; the last step of an episode can only get the goal
            # that it achieved itself. Stable-Baselines3 keeps them, too, but adds none for reached goals.
            columns["rest"]["discount"][rows[self.goals.terminated(achieved, goal)]] = 0
        return columns

    def _draw_achieved_goals(self, index: Array) -> Array:
        """Sample for each of the steps [B] an achieved goal [B, ...] of this or a later step of its episode."""
        data = self.data
        assert data is not None
        newest = (data.count - 1) * data.num_envs + index % data.num_envs
        ends = self.ends[index % data.total]
        steps_left = (np.where(ends == RUNNING, newest, ends) - index) // data.num_envs
        later = index + data.num_envs * self.generator.integers(0, steps_left + 1)
        _, last, _ = data.window(later, 1, self.gamma)  # skips steps of absent rows
        stored: Obs = data.obs
        return to_host(
            stored["achieved_goal"].after(last, data.flat["ended"].take(last % data.total))
        )

    def restart(self) -> None:
        super().restart()
        self._find_episodes()

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._find_episodes()

    def _find_episodes(self) -> None:
        """Find the starts and ends of the stored episodes."""
        data = self.data
        if data is None:
            return
        times = np.arange(data.oldest, data.count)
        numbers = times[:, None] * data.num_envs + np.arange(data.num_envs)
        never = np.iinfo(np.int64).max
        ended = data.ended[times % data.slots]
        ends = np.minimum.accumulate(np.where(ended, numbers, never)[::-1], 0)[::-1]
        self.ends = np.full(data.total, RUNNING)
        self.ends[numbers % data.total] = np.where(ends == never, RUNNING, ends)
        latest = np.where(ended, numbers, numbers[0] - data.num_envs).max(0)
        self.starts = latest + data.num_envs


def goals_of(spec: Spec) -> Goals:
    """Return the functions of the environment that compute the rewards of other goals.

    Raises:
        UsageError: the environment has no goals, its rewards need more than goals, or a wrapper changes them.
    """
    if spec.no_goals:
        raise UsageError(f"her replays other goals, and {spec.no_goals}, or leave her at 0")
    obs_spaces = spec.obs.spaces if isinstance(spec.obs, spaces.Dict) else {}
    if spec.goals is None or not {"achieved_goal", "desired_goal"} <= obs_spaces.keys():
        raise UsageError(
            f"her replays other goals, and {spec.id} has none: it takes observations with 'achieved_goal' and "
            "'desired_goal', a method compute_reward, and rewards that no wrapper changes; leave her at 0"
        )
    return spec.goals

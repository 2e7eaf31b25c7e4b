"""The episode buffer: a batch of whole episodes, one after another in one column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from rlplug_core.batches import Rollout, Truncations
from rlplug_core.buffers.rollout import put
from rlplug_core.clock import Clock
from rlplug_core.types import Array, Result, State, Step, tree_map


class EpisodeBuffer:
    """Returns the finished episodes as one `Rollout` [T, 1] as soon as they have `steps` steps, each episode once.

    With one environment, all of them were played with the newest weights. With several, the first steps of some were
    played before the last update.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        # Fields [slots, N, ...] of the steps since the start of the oldest unfinished episode.
        self.unfinished: State | None = None
        # The number of slots in use.
        self.length = 0
        # [N] the slot in which each row's unfinished episode starts.
        self.starts: Array = np.zeros(0, dtype=np.int64)
        self.finished: list[State] = []

    def add(self, step: Step, source: int = 0) -> None:
        fields = {
            "obs": step.obs,
            "action": step.action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "is_first": step.is_first,
            "weight": step.valid,
            "extras": step.extras,
        }
        if self.unfinished is None:
            self.starts = np.zeros(len(step.valid), dtype=np.int64)
            self.unfinished = tree_map(lambda array: array[None][:0], fields)
        if self.length == len(self.unfinished["weight"]):
            self._make_room(self.unfinished)
        put(self.unfinished, self.length, fields)
        self.length += 1
        if step.ended:
            for row in np.flatnonzero((step.terminated | step.truncated) & step.valid).tolist():
                self._finish(self.unfinished, row, step.next_obs)

    def batches(self, clock: Clock) -> Iterable[Rollout]:
        if sum(int(episode["weight"].sum()) for episode in self.finished) < self.steps:
            return ()
        episodes = self.finished
        self.finished = []
        return (_join(episodes),)

    def feedback(self, batch: Rollout, result: Result) -> None:
        """Rollouts have no priorities."""

    def restart(self) -> None:
        """Drop the steps of unfinished episodes."""
        self.starts[:] = self.length

    def state_dict(self) -> State:
        low = int(self.starts.min(initial=self.length))
        return {
            "open": tree_map(lambda array: array[low : self.length].copy(), self.unfinished),
            "begin": self.starts - low,
            "finished": list(self.finished),
        }

    def load_state_dict(self, state: State) -> None:
        self.unfinished = tree_map(np.array, state["open"])
        self.starts = np.array(state["begin"], dtype=np.int64)
        self.length = 0 if self.unfinished is None else len(self.unfinished["weight"])
        self.finished = list(state["finished"])

    def _finish(self, fields: State, row: int, next_obs: object) -> None:
        """Copy the episode of a row, which has ended, to `finished`."""
        episode = tree_map(lambda array: array[self.starts[row] : self.length, row].copy(), fields)
        self.finished.append(
            {**episode, "successor": tree_map(lambda array: np.array(array[row]), next_obs)}
        )
        self.starts[row] = self.length

    def _make_room(self, fields: State) -> None:
        """Drop the steps of finished episodes, and allocate as much additional memory as the other steps take."""
        low = int(self.starts.min())
        slots = max(64, self.length - low)

        def extend(array: Array) -> Array:
            added = np.zeros((slots, *array.shape[1:]), array.dtype)
            return np.concatenate([array[low:], added])

        self.unfinished = tree_map(extend, fields)
        self.starts -= low
        self.length -= low


def _join(episodes: list[State]) -> Rollout:
    """Concatenate episodes; `truncations` has the true successor of each, and `obs` that of the last one, too."""
    names = ("action", "reward", "terminated", "truncated", "is_first", "extras")
    fields = {name: _concatenate([episode[name] for episode in episodes]) for name in names}
    successors = tree_map(
        lambda *arrays: np.stack(arrays), *(episode["successor"] for episode in episodes)
    )
    last = tree_map(lambda array: array[-1:], successors)
    obs = _concatenate([*(episode["obs"] for episode in episodes), last])
    weight = _concatenate([episode["weight"].astype(np.float32) for episode in episodes])
    ends = np.cumsum([len(episode["weight"]) for episode in episodes]) - 1
    return Rollout(
        obs=obs,
        **fields,
        weight=weight,
        truncations=Truncations(successors, ends, len(ends)),
        recurrent_state=None,
        whole=bool(weight.all()),
    )


def _concatenate(trees: list[object]) -> Any:
    """Concatenate trees of [L, ...] to one tree of [T, 1, ...]."""
    return tree_map(lambda *arrays: np.concatenate(arrays)[:, None], *trees)

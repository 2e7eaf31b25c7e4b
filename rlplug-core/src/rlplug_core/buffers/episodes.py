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

    With one environment the newest weights played all of them. With several, unfinished episodes continue.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.open: State | None = (
            None  # fields [slots, N, ...] of the steps since the start of the oldest unfinished episode
        )
        self.length = 0
        # The position in `open` of the start of each row's unfinished episode.
        self.begin: Array = np.zeros(0, dtype=np.int64)
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
        if self.open is None:
            self.begin = np.zeros(len(step.valid), dtype=np.int64)
            self.open = tree_map(lambda array: array[None][:0], fields)
        if self.length == len(self.open["weight"]):
            self._make_room(self.open)
        put(self.open, self.length, fields)
        self.length += 1
        if step.ended:
            for row in np.flatnonzero((step.terminated | step.truncated) & step.valid).tolist():
                self._finish(self.open, row, step.next_obs)

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
        self.begin[:] = self.length

    def state_dict(self) -> State:
        low = int(self.begin.min(initial=self.length))
        return {
            "open": tree_map(lambda array: array[low : self.length].copy(), self.open),
            "begin": self.begin - low,
            "finished": list(self.finished),
        }

    def load_state_dict(self, state: State) -> None:
        self.open = tree_map(np.array, state["open"])
        self.begin = np.array(state["begin"], dtype=np.int64)
        self.length = 0 if self.open is None else len(self.open["weight"])
        self.finished = list(state["finished"])

    def _finish(self, fields: State, row: int, next_obs: object) -> None:
        episode = tree_map(lambda array: array[self.begin[row] : self.length, row].copy(), fields)
        self.finished.append(
            {**episode, "successor": tree_map(lambda array: np.array(array[row]), next_obs)}
        )
        self.begin[row] = self.length

    def _make_room(self, fields: State) -> None:
        """Drop the steps of finished episodes, and allocate as much additional memory as the other steps take."""
        low = int(self.begin.min())
        slots = max(64, self.length - low)

        def extend(array: Array) -> Array:
            added = np.zeros((slots, *array.shape[1:]), array.dtype)
            return np.concatenate([array[low:], added])

        self.open = tree_map(extend, fields)
        self.begin -= low
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


def _concatenate(parts: list[object]) -> Any:
    """Concatenate trees of [L, ...] to one tree of [T, 1, ...]."""
    return tree_map(lambda *arrays: np.concatenate(arrays)[:, None], *parts)

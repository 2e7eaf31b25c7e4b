"""The rollout buffer: the last T steps of all environments, returned once when it is full."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import cast

import numpy as np
import torch
from torch import Tensor

from rlplug_core.arrays import copy_of, to_device, zeros
from rlplug_core.batches import Rollout, Truncations, rows_of
from rlplug_core.buffers.storage import check_extras
from rlplug_core.clock import Clock
from rlplug_core.types import Array, Obs, Result, State, Step, first_leaf, tree_map

#: The fields of a rollout that hold rows [T, N, ...].
FIELDS = ("obs", "action", "reward", "terminated", "truncated", "is_first", "weight", "extras")


class RolloutBuffer:
    """Collects `steps` steps and returns them as one `Rollout`; the next rollout uses the same memory.

    The true successor of a step is the observation of the next step, except if the episode was truncated: then it is
    stored separately. With `agents` above 1 this happens for all rows of that world, because a critic may need them.

    Steps with tensors are stored on their device. To read which episodes were truncated, the host would have to wait
    for the device at each step, so `finals` [T, N, ...] stores all successors, and `batches` selects those needed.
    """

    #: Steps may have tensors.
    takes_tensors = True

    def __init__(self, steps: int, agents: int = 1) -> None:
        self.steps = steps
        self.agents = agents
        self.position = 0
        self.rollout: Rollout | None = None
        self.finals: Obs = None

    def add(self, step: Step, source: int = 0) -> None:
        t = self.position % self.steps
        data = self.rollout
        if data is None:
            data = self.rollout = self._allocate(step)
        if t == 0:
            data.truncations.count = 0
            data.recurrent_state = tree_map(copy_of, step.recurrent_state)
        put(data.obs, t, step.obs)
        data.action[t] = step.action
        data.reward[t] = step.reward
        data.terminated[t] = step.terminated
        data.truncated[t] = step.truncated
        data.is_first[t] = step.is_first
        data.weight[t] = step.valid
        for name, array in step.extras.items():
            data.extras[name][t] = array
        self.position = t + 1
        if self.position == self.steps:
            put(data.obs, self.steps, step.next_obs)
        elif step.ended:
            self._store_truncated(data.truncations, t, step)

    def batches(self, clock: Clock) -> Iterable[Rollout]:
        if self.position < self.steps or self.rollout is None:
            return ()
        self.position = 0
        if self.finals is not None:
            # Without the last steps [T - 1, N], because their successors are the last observations.
            truncated = torch.as_tensor(self.rollout.truncated[:-1].reshape(-1))
            index = truncated.nonzero().squeeze(-1)
            obs = tree_map(lambda array: array.flatten(0, 1).index_select(0, index), self.finals)
            self.rollout.truncations = Truncations(obs, cast("Array", index), len(index))
        self.rollout.whole = bool(self.rollout.weight.all())
        return (self.rollout,)

    def feedback(self, batch: Rollout, result: Result) -> None:
        """Rollouts have no priorities."""

    def restart(self) -> None:
        """Drop the steps of an unfinished rollout."""
        if self.position < self.steps:
            self.position = 0

    def state_dict(self) -> State:
        if self.rollout is None or self.position == 0:
            return {"position": 0}
        data = self.rollout
        t = self.position
        used = data.truncations.count

        def head(array: Array) -> Array:
            # A full rollout has one more observation than steps.
            return copy_of(array[: t + (t == self.steps)])

        return {
            "position": t,
            "data": {name: tree_map(head, getattr(data, name)) for name in FIELDS},
            "recurrent_state": data.recurrent_state,
            "cuts": {
                "obs": tree_map(lambda array: copy_of(array[:used]), data.truncations.obs),
                "index": copy_of(data.truncations.index[:used]),
            },
            **self._state_on_device(head),
        }

    def _state_on_device(self, head: Callable[[Array], Array]) -> State:
        """Return the entries of the state that only steps with tensors have."""
        if self.finals is None:
            return {}
        return {
            "finals": tree_map(head, self.finals),
            "device": str(first_leaf(self.finals).device),
        }

    def load_state_dict(self, state: State) -> None:
        self.position = state["position"]
        self.rollout = None
        self.finals = None
        if self.position == 0:
            return
        if "device" in state:
            tensors = {name: state[name] for name in ("data", "recurrent_state", "cuts", "finals")}
            state = {**state, **to_device(tensors, torch.device(state["device"]))}
            self.finals = tree_map(lambda a: self._resize(a, False), state["finals"])
        saved = state["data"]
        cuts = state["cuts"]
        self.rollout = data = Rollout(
            **{
                name: tree_map(lambda a, n=name: self._resize(a, n == "obs"), tree)
                for name, tree in saved.items()
            },
            truncations=Truncations(cuts["obs"], cuts["index"], len(cuts["index"])),
            recurrent_state=state["recurrent_state"],
        )
        if self.finals is None:  # as in `_allocate`, memory for one truncation of each environment
            truncations = data.truncations
            truncations.index = np.asarray(truncations.index, dtype=np.int64)
            size = max(len(truncations.index), data.reward.shape[1])
            self._grow(truncations, size, tree_map(lambda a: a[0], data.obs))

    def _allocate(self, step: Step) -> Rollout:
        """Return an empty rollout for steps like this one."""
        num_envs = rows_of(step.obs)
        on_device = isinstance(step.reward, Tensor)

        def zero_rows(length: int, like: object, dtype: object = None) -> Obs:
            if on_device:
                return tree_map(lambda array: array.new_zeros((length, *array.shape)), like)
            return tree_map(
                lambda array: np.zeros((length, *array.shape), dtype or array.dtype), like
            )

        check_extras(step.extras, num_envs)
        t = self.steps
        self.finals = zero_rows(t, step.obs) if on_device else None
        return Rollout(
            obs=zero_rows(t + 1, step.obs),
            action=zero_rows(t, step.action),
            reward=zero_rows(t, step.reward, np.float32),
            terminated=zero_rows(t, step.terminated),
            truncated=zero_rows(t, step.truncated),
            is_first=zero_rows(t, step.is_first),
            weight=zero_rows(t, step.reward, np.float32),
            truncations=Truncations(deepcopy(step.obs), np.zeros(num_envs, np.int64), 0),
            extras=zero_rows(t, step.extras),
            recurrent_state=None,
        )

    def _store_truncated(
        self,
        truncations: Truncations,
        t: int,
        step: Step,
    ) -> None:
        """Store the final observations of the episodes that were truncated at step `t`."""
        if self.finals is not None:
            put(self.finals, t, step.next_obs)
            return
        num_envs = len(step.truncated)
        truncated = step.truncated.reshape(-1, self.agents).any(1).repeat(self.agents)
        for row in np.flatnonzero(truncated):
            if truncations.count == len(truncations.index):
                self._grow(truncations, 2 * truncations.count, step.obs)
            put(
                truncations.obs,
                truncations.count,
                tree_map(operator.itemgetter(row), step.next_obs),
            )
            truncations.index[truncations.count] = t * num_envs + row
            truncations.count += 1

    def _grow(self, truncations: Truncations, size: int, obs: Obs) -> None:
        """Allocate memory for `size` truncations.

        Unused places hold observations `obs` [N, ...], because zeros may be outside the observation space.
        """

        def extend(array: Array, fill: Array) -> Array:
            added = np.resize(fill, (size - len(array), *array.shape[1:]))
            return np.concatenate([array, added])

        truncations.obs = tree_map(extend, truncations.obs, obs)
        truncations.index = extend(truncations.index, np.zeros(1, np.int64))

    def _resize(self, array: Array, obs: bool) -> Array:
        """Return saved rows in memory for all steps of a rollout; observations (`obs`) have one row more."""
        resized = zeros((self.steps + obs, *array.shape[1:]), array)
        resized[: len(array)] = array
        return resized


def put(store: Obs, index: int | Array, value: Obs) -> None:
    """Set `store[index] = value` for arrays and nested dictionaries of arrays."""
    if isinstance(store, dict):
        for key, part in store.items():
            put(part, index, value[key])
    else:
        store[index] = value

"""`DeviceReplay`: uniform replay of environments on a device; steps, random numbers and batches stay there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator, to_device
from rlplug_core.batches import Transitions, rows_of
from rlplug_core.buffers.free_memory import check_free
from rlplug_core.buffers.learner_extras import LearnerExtras
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.config.schedules import Schedule
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Obs, State, Step, tree_map


class DeviceRing:
    """The last `slots` steps of every row as tensors [slots, N, ...] on one device.

    Both observations of a step are stored. To store the next one only at the end of an episode, the host would have to
    ask the device for these ends, and wait. Each field is flat, [slots * N, ...].
    """

    FIELDS = ("obs", "next_obs", "action", "reward", "terminated", "ended", "valid", "extras")

    def __init__(self, slots: int, fields: State) -> None:
        self.slots = slots
        self.num_envs = int(fields["reward"].shape[1])
        self.total = slots * self.num_envs
        self.flat: State = {
            name: tree_map(lambda rows: rows.flatten(0, 1), fields[name]) for name in self.FIELDS
        }
        self.count = 0

    @classmethod
    def like(cls, step: Step, slots: int) -> DeviceRing:
        """Return an empty ring for steps like this one.

        Raises:
            UsageError: it does not fit into the free memory of the device.
        """
        fields = _fields_of(step)
        sizes: list[int] = []
        tree_map(lambda row: sizes.append(row.nbytes), fields)
        steps = slots * rows_of(step.obs)
        device = fields["reward"].device
        check_free(slots * sum(sizes), device, "buffer_size", f"a replay buffer of {steps:,} steps")
        return cls(slots, tree_map(lambda row: row.new_empty((slots, *row.shape)), fields))

    @property
    def oldest(self) -> int:
        """Return the time of the oldest stored step."""
        return max(0, self.count - self.slots)

    def write(self, step: Step) -> None:
        """Store a step in place of the oldest one."""
        start = self.count % self.slots * self.num_envs
        for name, rows in _fields_of(step).items():
            tree_map(
                lambda flat, new: flat[start : start + self.num_envs].copy_(new),
                self.flat[name],
                rows,
            )
        self.count += 1

    def end(self) -> None:
        """Mark the last step of every row as truncated, unless its episode ended."""
        if self.count:
            start = (self.count - 1) % self.slots * self.num_envs
            self.flat["ended"][start : start + self.num_envs] = True

    def has_window(self, n: int) -> bool:
        """Return whether there is a complete window of n steps."""
        return self.count >= n

    def window(
        self,
        index: Tensor,
        n: int,
        gamma: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sum the rewards of the n steps that start at the steps `index` [B].

        Returns:
            The discounted sum of rewards, the number of the last step of each window, and gamma^k for its k rewards,
            each [B].
        """
        reward = self.flat["reward"][index % self.total]
        discount = torch.full_like(reward, gamma)
        last = index
        running = ~self.flat["ended"][index % self.total]
        for _ in range(1, n):
            last = last + self.num_envs * running
            position = last % self.total
            reward = reward + torch.where(running, discount * self.flat["reward"][position], 0)
            discount = torch.where(running, discount * gamma, discount)
            running = running & ~self.flat["ended"][position]
        return reward, last, discount

    def state_dict(self) -> State:
        """Return the slots in use, as views."""
        used = min(self.count, self.slots) * self.num_envs
        return {
            "slots": self.slots,
            "count": self.count,
            "num_envs": self.num_envs,
            "device": str(self.flat["reward"].device),
            "fields": tree_map(lambda rows: rows[:used], self.flat),
        }

    @classmethod
    def load(cls, state: State) -> DeviceRing:
        num_envs = state["num_envs"]

        def resize(rows: Tensor) -> Tensor:
            full = rows.new_empty((state["slots"], num_envs, *rows.shape[1:]))
            full.flatten(0, 1)[: len(rows)] = rows
            return full

        fields = to_device(state["fields"], torch.device(state["device"]))
        ring = cls(state["slots"], tree_map(resize, fields))
        ring.count = state["count"]
        return ring


class DeviceReplay(ReplayBuffer):
    """Samples like `ReplayBuffer`, but on the device of the steps; nothing waits for the device.

    An absent row, which only environments with NEXT_STEP resets have, counts as a step, and has weight 0 in a
    batch. Arguments as in `ReplayBuffer`; `store` is the device of the steps.
    """

    #: It stores tensors on their device.
    takes_tensors = True
    data: DeviceRing | None  # type: ignore[assignment] # replaces a ring of arrays

    def __init__(
        self,
        capacity: int,
        pace: ReplaySchedule,
        n_step: int,
        gamma: Schedule | float,
        seeds: Seeds,
        device: torch.device,
        store: str,
    ) -> None:
        super().__init__(
            capacity, pace, n_step=n_step, gamma=gamma, seeds=seeds, device=device, store=store
        )
        self.draws = DeviceGenerator(seeds.integer(), torch.device(store))

    def add(self, step: Step, source: int = 0) -> None:
        num_envs = rows_of(step.obs)
        if self.learner_extras is not None:
            step = self.learner_extras.add_to(step)
        if self.data is None:
            self.data = DeviceRing.like(step, self._slots(num_envs))
        self.data.write(step)
        self._advance(num_envs)

    def sample(self, size: int) -> Array:
        """Draw uniformly the numbers [size] of steps with a complete window, as a tensor on the device."""
        data = self.data
        assert data is not None
        low = data.oldest * data.num_envs
        high = (data.count - self.span + 1) * data.num_envs
        return cast("Array", self.draws.integers(low, high, size))

    def gather(self, index: Array, weight: Array | None = None) -> Transitions:
        """Make a batch of the n-step transitions that start at the steps `index` [B], a tensor on the device."""
        data = self.data
        assert data is not None
        numbers = cast("Tensor", index)
        reward, last, discount = data.window(numbers, self.n_step, self.gamma)
        start = numbers % data.total
        end = last % data.total
        flat = data.flat

        def rows(name: str, at: Tensor) -> Obs:
            return tree_map(lambda tensor: tensor[at], flat[name])

        return Transitions(
            weight=rows("valid", start).to(torch.float32),
            share=None,
            obs=rows("obs", start),
            action=rows("action", start),
            reward=reward,
            discount=discount * ~rows("terminated", end),
            next_obs=rows("next_obs", end),
            index=numbers,
            extras=rows("extras", start),
        ).to(self.device)

    def _write_extras(
        self,
        batch: Transitions,
        extras: Mapping[str, Tensor | Array],
    ) -> None:
        assert self.data is not None
        learner_extras = self.learner_extras or LearnerExtras({})
        learner_extras.check(extras, len(batch.weight))
        place = batch.index.to(self.data.flat["reward"].device) % self.data.total
        for name, value in extras.items():
            store = self.data.flat["extras"][name]
            store[place] = torch.as_tensor(value, dtype=store.dtype, device=store.device)

    def state_dict(self) -> State:
        return {**super().state_dict(), "draws": self.draws.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict({**state, "data": None})
        self.draws.load_state_dict(state["draws"])
        if state["data"] is not None:
            self.data = DeviceRing.load(state["data"])


def _fields_of(step: Step) -> State:
    """Return the parts of a step that a ring stores, as tensors [N, ...]; absent rows never end an episode."""
    valid = step.valid
    ended = step.terminated | step.truncated
    return {
        "obs": step.obs,
        "next_obs": step.next_obs,
        "action": step.action,
        "reward": step.reward,
        "terminated": step.terminated & valid,
        "ended": ended & valid,
        "valid": valid,
        "extras": step.extras,
    }

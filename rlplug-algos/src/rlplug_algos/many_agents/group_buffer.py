"""One buffer for the buffers of all groups of agents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import rlplug_core as rl
from rlplug_algos.many_agents.groups import Group, take_step_rows
from rlplug_core.protocols import SupportsRestart


class GroupsBuffer:
    """Passes each group's buffer the rows of its agents; a batch is a pair of a group's name and its batch."""

    def __init__(
        self,
        groups: tuple[Group, ...],
        buffers: dict[str, rl.Buffer[Any]],
        signals: dict[str, dict[str, ArrayLike | None]],
    ) -> None:
        self.groups = groups
        self.buffers = buffers
        self.signals = signals

    def add(self, step: rl.Step, source: int = 0) -> None:
        for group in self.groups:
            own = part_of(step, group)
            for name, default in self.signals[group.name].items():
                own.extras[name] = signal_of(step, group, name, default)
            self.buffers[group.name].add(own, source)

    def batches(self, clock: rl.Clock) -> Iterator[tuple[str, Any]]:
        for name, buffer in self.buffers.items():
            for batch in buffer.batches(clock):
                yield name, batch

    def feedback(self, batch: tuple[str, Any], result: rl.Result) -> None:
        name, own = batch
        self.buffers[name].feedback(own, result)

    def restart(self) -> None:
        for buffer in self.buffers.values():
            if isinstance(buffer, SupportsRestart):
                buffer.restart()

    def state_dict(self) -> rl.State:
        return {name: buffer.state_dict() for name, buffer in self.buffers.items()}

    def load_state_dict(self, state: rl.State) -> None:
        for name, buffer in self.buffers.items():
            buffer.load_state_dict(state[name])


def part_of(step: rl.Step, group: Group) -> rl.Step:
    """Return the rows of a group's agents with their own spaces."""
    own = take_step_rows(step, group.rows(len(step.valid)))
    prefix = f"{group.name}/"
    return replace(
        own,
        obs=group.part(own.obs),
        action=group.own(own.action),
        next_obs=group.part(own.next_obs),
        extras={
            key.removeprefix(prefix): one
            for key, one in own.extras.items()
            if key.startswith(prefix)
        },
        recurrent_state=own.recurrent_state and own.recurrent_state[group.name],
    )


def signal_of(
    step: rl.Step,
    group: Group,
    name: str,
    default: ArrayLike | None,
) -> rl.Array:
    """Return the signal `name` of a group's agents, NaN replaced by the default.

    Raises:
        UsageError: an agent lacks the signal, and it has no default.
    """
    rows = group.rows(len(step.valid))
    own = step.extras[name][rows]
    lacking = np.isnan(own).reshape(len(own), -1).any(1)
    if default is None and (lacking & step.valid[rows]).any():
        raise rl.UsageError(
            f"{group.algorithm} learns from info['{name}'], and the info of an agent of the group {group.name} "
            "lacks it; give this agent another algorithm"
        )
    if lacking.any():
        own[lacking] = 0.0 if default is None else default
    return own

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
    """Gives each group's buffer the rows of its agents; a batch is a group's name and a batch of its buffer."""

    def __init__(
        self,
        groups: tuple[Group, ...],
        buffers: dict[str, rl.Buffer[Any]],
        signals: dict[str, dict[str, ArrayLike | None]],
    ) -> None:
        self.groups = groups
        self.buffers = buffers
        #: The signals of each group, with their defaults.
        self.signals = signals

    def add(self, step: rl.Step, source: int = 0) -> None:
        for group in self.groups:
            group_step = step_of_group(step, group)
            for name, default in self.signals[group.name].items():
                group_step.extras[name] = signal_of(step, group, name, default)
            self.buffers[group.name].add(group_step, source)

    def batches(self, clock: rl.Clock) -> Iterator[tuple[str, Any]]:
        for name, buffer in self.buffers.items():
            for batch in buffer.batches(clock):
                yield name, batch

    def feedback(self, batch: tuple[str, Any], result: rl.Result) -> None:
        name, group_batch = batch
        self.buffers[name].feedback(group_batch, result)

    def restart(self) -> None:
        for buffer in self.buffers.values():
            if isinstance(buffer, SupportsRestart):
                buffer.restart()

    def state_dict(self) -> rl.State:
        return {name: buffer.state_dict() for name, buffer in self.buffers.items()}

    def load_state_dict(self, state: rl.State) -> None:
        for name, buffer in self.buffers.items():
            buffer.load_state_dict(state[name])


def step_of_group(step: rl.Step, group: Group) -> rl.Step:
    """Return a step of a group's agents only, in their spaces."""
    rows = take_step_rows(step, group.rows(len(step.valid)))
    prefix = f"{group.name}/"
    return replace(
        rows,
        obs=group.observations_of(rows.obs),
        action=group.actions_of(rows.action),
        next_obs=group.observations_of(rows.next_obs),
        extras={
            key.removeprefix(prefix): value
            for key, value in rows.extras.items()
            if key.startswith(prefix)
        },
        recurrent_state=rows.recurrent_state and rows.recurrent_state[group.name],
    )


def signal_of(
    step: rl.Step,
    group: Group,
    name: str,
    default: ArrayLike | None,
) -> rl.Array:
    """Return the signal `name` of a group's agents; NaN, which marks a missing signal, becomes the default.

    Raises:
        UsageError: an agent lacks the signal, and it has no default.
    """
    rows = group.rows(len(step.valid))
    values = step.extras[name][rows]
    missing = np.isnan(values).reshape(len(values), -1).any(1)
    if default is None and (missing & step.valid[rows]).any():
        raise rl.UsageError(
            f"{group.algorithm} learns from info['{name}'], and the info of an agent of the group {group.name} "
            "lacks it; give this agent another algorithm"
        )
    if missing.any():
        values[missing] = 0.0 if default is None else default
    return values

"""`HostBuffer`: a buffer of arrays for an environment on a device; every step is copied to the host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from torch import Tensor

from rlplug_core.arrays import to_host
from rlplug_core.clock import Clock
from rlplug_core.protocols import AnyBuffer, SupportsRestart
from rlplug_core.types import Result, Spec, State, Step, tree_map


class HostBuffer:
    """Passes every step to another buffer as arrays; the host waits for the device at each step.

    Args:
        buffer: a buffer that stores arrays.
    """

    def __init__(self, buffer: AnyBuffer) -> None:
        self.buffer = buffer

    def add(self, step: Step, source: int = 0) -> None:
        self.buffer.add(on_host(step), source)

    def batches(self, clock: Clock) -> Iterable[Any]:
        return self.buffer.batches(clock)

    def feedback(self, batch: object, result: Result) -> None:
        self.buffer.feedback(batch, result)

    def restart(self) -> None:
        """Start new rows, if the buffer can."""
        if isinstance(self.buffer, SupportsRestart):
            self.buffer.restart()

    def state_dict(self) -> State:
        return self.buffer.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.buffer.load_state_dict(state)


def fit_device(buffer: AnyBuffer, spec: Spec) -> AnyBuffer:
    """Return `buffer` if it takes the steps of an environment, else one that copies them to the host."""
    if spec.device is None or getattr(buffer, "takes_tensors", False):
        return buffer
    return HostBuffer(buffer)


def on_host(step: Step) -> Step:
    """Return a step with arrays in place of tensors."""

    def copy_leaves(tree: object) -> Any:
        return tree_map(
            lambda leaf: to_host(leaf).copy() if isinstance(leaf, Tensor) else leaf, tree
        )

    names = (field.name for field in fields(step))
    arrays = {name: copy_leaves(getattr(step, name)) for name in names if name != "ended"}
    if step.next_obs is step.obs:
        arrays["next_obs"] = arrays["obs"]
    return Step(**arrays, ended=bool((arrays["terminated"] | arrays["truncated"]).any()))

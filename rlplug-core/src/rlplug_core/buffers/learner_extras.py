"""Extras that a learner writes for the steps that it trained on; later batches with these steps contain them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike

from rlplug_core.arrays import Either
from rlplug_core.batches import rows_of
from rlplug_core.errors import PluginError, did_you_mean
from rlplug_core.types import Array, Step

#: Extras of sequences that their buffer sets.
RESERVED = ("is_first", "valid", "later")


class LearnerExtras:
    """The extras of a replay buffer that its learner writes.

    Args:
        values: the values of new steps, by name: a number, or an array [...]. Floats become float32.

    Raises:
        PluginError: the buffer itself sets an extra of this name.
    """

    def __init__(self, values: Mapping[str, ArrayLike]) -> None:
        if reserved := sorted(set(RESERVED) & values.keys()):
            raise PluginError(
                f"with_extras: '{reserved[0]}' is set by the buffer; choose another name"
            )
        arrays = {name: np.asarray(value) for name, value in values.items()}
        self.values = {
            name: array.astype(np.float32) if array.dtype.kind == "f" else array
            for name, array in arrays.items()
        }

    def add_to(self, step: Step) -> Step:
        """Return the step with the values of new steps among its extras.

        Raises:
            PluginError: the agent or a signal has an extra of this name.
        """
        if taken := sorted(self.values.keys() & step.extras.keys()):
            raise PluginError(
                f"with_extras: steps already have an extra '{taken[0]}', from the agent or from a signal; choose "
                "another name"
            )
        rows = rows_of(step.obs)
        new = {name: _repeat_rows(value, rows, step.reward) for name, value in self.values.items()}
        return replace(step, extras={**step.extras, **new})

    def check(self, extras: Mapping[str, Either], rows: int) -> None:
        """Raise PluginError unless each of `extras` is one of these extras and has `rows` rows."""
        for name, value in extras.items():
            if name not in self.values:
                raise PluginError(
                    f"`update` returned extras['{name}'], which its buffer does not have"
                    f"{did_you_mean(name, self.values)}; add it where the buffer is made: .with_extras({name}=0.0)"
                )
            shape = (rows, *self.values[name].shape)
            if tuple(value.shape) != shape:
                raise PluginError(
                    f"`update` returned extras['{name}'] of shape {tuple(value.shape)}, and the batch needs {shape}"
                )


def _repeat_rows(value: Array, rows: int, like: Either) -> Either:
    """Return a value [...] for each row, [rows, ...]: a tensor on the device of `like` if that is one."""
    if isinstance(like, torch.Tensor):
        return torch.as_tensor(value, device=like.device).expand(rows, *value.shape)
    return np.broadcast_to(value, (rows, *value.shape))

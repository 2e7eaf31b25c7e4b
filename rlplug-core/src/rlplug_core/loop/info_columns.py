"""The signals of a learner: columns that an actor gathers from `info` after every step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rlplug_core.errors import BadEnv, PluginError, UsageError
from rlplug_core.plugins.env_base import EnvBase, complete
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.types import Array, State, first_nonfinite_row


class InfoColumns:
    """Gathers the values of `info` that a learner names, for `Step.extras`.

    Args:
        env: the environment inside its wrappers.
        names: the names, each with the value of a step without it; None: every step must have it.
        learner: the name of the learner's class, for messages.
    """

    def __init__(
        self,
        env: EnvBase,
        names: Mapping[str, ArrayLike | None],
        learner: str,
    ) -> None:
        self.env = env
        self.defaults = {
            name: None if value is None else np.asarray(value, np.float32)
            for name, value in names.items()
        }
        self.learner = learner
        #: The shapes of single values, known after the first step.
        self.shapes: dict[str, tuple[int, ...]] = {}

    @staticmethod
    def of(learner: AnyLearner, env: Env) -> InfoColumns | None:
        """Return the columns that a learner's `signals` name; None if there are none."""
        names = signals_of(learner)
        kind = InfoColumns if env.spec.device is None else TensorColumns
        return kind(complete(env), names, type(learner).__name__) if names else None

    def add_to(
        self,
        extras: Mapping[str, Array],
        valid: Array,
    ) -> dict[str, Array]:
        """Return the agent's extras together with the columns of the step that the environment just made.

        Args:
            extras: of the agent.
            valid: [N] the rows with a transition; the others have the default or 0.

        Returns:
            The columns as float32 [N], or [N, ...] if a value is an array with several numbers; tensors if the
            environment has a device.

        Raises:
            UsageError: the environment lacks a signal. BadEnv: a signal is not made of finite numbers of one shape.
            PluginError: the agent writes an extra of the same name.
        """
        for name in self.defaults.keys() & extras.keys():
            raise PluginError(
                f"'{name}' is a signal of {self.learner} and an extra of its agent; rename the extra"
            )
        return {**extras, **{name: self._column(name, valid) for name in self.defaults}}

    def _column(self, name: str, valid: Array) -> Array:
        values = self.env.info(name)
        if not valid.all() or any(value is None for value in values):
            values = self._fill_gaps(name, values, valid)
        try:
            column = np.array(values, np.float32)
        except (TypeError, ValueError) as error:
            raise self._bad(name, "is not a number or an array of numbers of one shape") from error
        column = self._of_one_shape(name, column)
        if not np.isfinite(column).all():
            row = first_nonfinite_row(column)
            raise self._bad(name, f"of environment {row} is not finite")
        return column

    def _of_one_shape(self, name: str, column: Array) -> Array:
        """Return a column with numbers as [N]; raise BadEnv if its shape was another one before."""
        if column.shape[1:] == (1,):
            column = column[:, 0]
        shape = self.shapes.setdefault(name, tuple(column.shape[1:]))
        if column.shape[1:] != shape:
            former = list(shape) if shape else "a number"
            raise self._bad(
                name, f"has the shape {list(column.shape[1:])}, and was {former} before"
            )
        return column

    def check(self) -> None:
        """Raise BadEnv if a value was not finite; arrays have been checked at each step."""

    def _fill_gaps(
        self,
        name: str,
        values: list[ArrayLike | None],
        valid: Array,
    ) -> list[ArrayLike]:
        """Return the values with the default in rows without one, and 0 in rows without a transition."""
        default = self.defaults[name]
        missing = [row for row, value in enumerate(values) if value is None and valid[row]]
        if default is None:
            if missing:
                raise self._missing(name, values, missing[0])
            default = np.zeros((), np.float32)
        present = [
            value
            for value, is_valid in zip(values, valid, strict=True)
            if is_valid and value is not None
        ]
        shape = self.shapes.get(name, np.shape(present[0]) if present else np.shape(default))
        default = np.broadcast_to(default, shape)
        return [
            value if is_valid and value is not None else default
            for value, is_valid in zip(values, valid, strict=True)
        ]

    def _missing(
        self,
        name: str,
        values: list[ArrayLike | None],
        row: int,
    ) -> UsageError:
        names = ", ".join(sorted(self.env.info_names())) or "nothing"
        if any(value is not None for value in values) or name in self.shapes:
            return UsageError(
                f"{self.env.spec.id}, environment {row}: a step has no info['{name}'], which other steps have and "
                f"{self.learner} learns from; let the environment give it at every step, or name a default in the "
                f"class: signals = {{'{name}': 0.0}}"
            )
        return UsageError(
            f"{self.learner} learns from info['{name}'], which {self.env.spec.id} does not give: its info has "
            f"{names}; use another environment, or a wrapper that adds '{name}' to info"
        )

    def _bad(self, name: str, reason: str) -> BadEnv:
        return BadEnv(f"{self.env.spec.id}: info['{name}'], a signal of {self.learner}, {reason}")

    def state_dict(self) -> State:
        return {name: list(shape) for name, shape in self.shapes.items()}

    def load_state_dict(self, state: State) -> None:
        self.shapes = {name: tuple(shape) for name, shape in state.items()}


class TensorColumns(InfoColumns):
    """Gathers the values of `info` as tensors on the environment's device; nothing waits for the device.

    Values that are not finite are found by `check`, which waits.
    """

    #: 0, or NaN after a value that was not finite.
    probe: Tensor | float = 0.0

    def _column(self, name: str, valid: Array) -> Array:
        default = self.defaults[name]
        value = self.env.info_tensor(name)
        if value is None and default is None:
            raise self._missing(name, [], 0)
        rows = cast("Tensor", valid)
        fill = torch.as_tensor(0.0 if default is None else default, device=rows.device)
        if value is None:
            value = fill.expand(len(rows), *self.shapes.get(name, fill.shape))
        if value.shape[:1] != rows.shape:
            raise self._bad(name, f"has the shape {[*value.shape]}, and there are {len(rows)} rows")
        column: Any = self._of_one_shape(name, cast("Array", value.to(torch.float32)))
        present = torch.where(rows.reshape(-1, *[1] * (column.ndim - 1)), column, fill)
        self.probe = self.probe + (present * 0).sum()
        return cast("Array", present)

    def check(self) -> None:
        """Raise BadEnv if a value was NaN or infinite since the start of the run; waits for the device."""
        if not isfinite(self.probe):
            listed = ", ".join(f"info['{name}']" for name in self.defaults)
            raise BadEnv(
                f"{self.env.spec.id}: since the last log record a signal of {self.learner} was not finite: {listed}"
            )


def signals_of(learner: object) -> dict[str, ArrayLike | None]:
    """Return a learner's signals by name, each with its value for steps without it; None if every step must have it.

    Raises:
        PluginError: `signals` is a string.
    """
    signals = getattr(learner, "signals", ())
    if isinstance(signals, str):
        raise PluginError(
            f"signals of {type(learner).__name__} is a string; write signals = ('{signals}',)"
        )
    return dict(signals) if isinstance(signals, Mapping) else dict.fromkeys(signals)

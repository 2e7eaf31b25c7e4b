"""`Metrics`: a dictionary that makes its tensors when one is read; most metrics of minibatches are never read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rlplug_core.accelerator import Function
from rlplug_core.fast.array import FastTensor


class Metrics(dict[str, Tensor | FastTensor]):
    """Tensors by name; FastTensors until something reads a value, by any method or as `{**metrics}`."""

    #: Whether all values are tensors.
    complete = False

    def make_tensors(self) -> None:
        """Replace FastTensors by tensors."""
        for name, value in list(super().items()):
            if isinstance(value, FastTensor):
                self[name] = torch.from_numpy(np.asarray(value.value))
        self.complete = True

    # With its own method `__iter__`, `dict` and `{**metrics}` read values by `__getitem__`.

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        """Take other metrics without reading them."""
        super().update(dict.items(other))
        self.complete = self.complete and getattr(other, "complete", True)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        self.make_tensors()
        return dict, (dict(dict.items(self)),)


def _make_tensors_before(method: Function) -> Function:
    """Return a method of `dict` that makes the tensors first."""

    def read(metrics: Metrics, *args: object) -> object:
        if not metrics.complete:
            metrics.make_tensors()
        return method(metrics, *args)

    read.__name__ = method.__name__
    return read


for name in (
    *("__eq__", "__ne__", "__getitem__", "__or__", "__ror__", "__repr__", "__reversed__"),
    *("copy", "get", "items", "pop", "popitem", "setdefault", "values"),
):
    setattr(Metrics, name, _make_tensors_before(getattr(dict, name)))

"""Bounds for the count of numbers that a step of a program reads and writes, known before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from torch import Tensor

#: Operations with a result that is at most as large as their tensors, expanded to one shape.
SHAPED = frozenset(
    f"aten.{name}"
    for name in (
        "_to_copy.default",
        "add.Tensor",
        "any.dim",
        "argmax.default",
        "bitwise_and.Tensor",
        "bitwise_not.default",
        "clamp.default",
        "eq.Scalar",
        "logical_not.default",
        "mul.Tensor",
        "permute.default",
        "relu.default",
        "reshape.default",
        "scatter.value",
        "slice.Tensor",
        "squeeze.dims",
        "sub.Tensor",
        "sym_size.int",
        "tanh.default",
        "where.self",
    )
)


def numbers(
    function: Callable[..., object],
    arguments: Sequence[Any],
) -> int | None:
    """Return how many numbers an operation reads and writes at most; None for an operation that is not listed here."""
    read = sum(tensor.numel() for tensor in _tensors(arguments))
    name = str(function)
    if name == "aten.addmm.default":
        written = arguments[1].shape[0] * arguments[2].shape[1]
    elif name == "aten.cat.default":
        written = read
    elif name in ("aten.full.default", "aten.scalar_tensor.default"):
        written = prod(arguments[0]) if isinstance(arguments[0], list) else 1
    elif name in SHAPED:
        # The size of the smallest shape into which each of the tensors fits.
        reversed_shapes = (tensor.shape[::-1] for tensor in _tensors(arguments))
        written = prod(max(sizes) for sizes in zip_longest(*reversed_shapes, fillvalue=1))
    else:
        return None
    return read + int(written)


def _tensors(arguments: Sequence[Any]) -> Iterator[Tensor]:
    for value in arguments:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            yield from _tensors(value)

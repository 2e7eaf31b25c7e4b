"""Batches of arrays: each tensor is made when plain code reads it, because making one takes as long as an operation.

A loss on the fast path reads none. Such a batch is an instance of a subclass of the batch's class; `map` and
`dataclasses.replace` make batches of the class itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from types import MemberDescriptorType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.compiler import is_compiling

from rlplug_core.batches import Batch, Samples
from rlplug_core.types import Array, tree_map

#: A field of a batch: an array, a tensor, nested dictionaries of these, or None. Also a batch,
#: an argument of a loss, or its result.
Field: TypeAlias = Any


class Layout:
    """The fields of a class of batches, and its subclass that holds arrays in them.

    Args:
        batch_class: the class.
        slots: the slots of its fields, in their order: `counts` after `weight`.
    """

    def __init__(
        self,
        batch_class: type[Batch],
        slots: Sequence[MemberDescriptorType],
    ) -> None:
        self.batch_class: Field = batch_class
        self.defaults = [each.default for each in fields(batch_class)]
        self.read = [slot.__get__ for slot in slots]
        self.write = [slot.__set__ for slot in slots]
        self.holder: Field = type(
            batch_class.__name__,
            (batch_class,),
            {
                "__slots__": ("fast",),
                "__new__": lambda cls, *args, **named: batch_class(*args, **named),
                "__reduce_ex__": _reduce,
                "to": _to_device,
                "standard_normal": _standard_normal,
                **{slot.__name__: _tensor_property(slot) for slot in slots},
            },
        )
        HOLDERS[self.holder] = self

    def hold(self, values: Iterable[Field]) -> Field:
        """Return a batch of arrays, from the values of all fields."""
        batch = object.__new__(self.holder)
        batch.fast = None
        for write, value in zip(self.write, values, strict=True):
            write(batch, value)
        return batch

    def arrays(self, batch: Batch) -> list[Field]:
        """Return the values of all fields as arrays."""
        return [_array(read(batch)) for read in self.read]

    def convert(
        self,
        batch: Batch,
        make: Callable[[Array], Field],
        tree: Callable[[Field], Field],
    ) -> Field:
        """Return a batch of `batch_class`, with arrays converted by `make` and all other fields by `tree`."""
        result = object.__new__(self.batch_class)
        for read, write in zip(self.read, self.write, strict=True):
            value = read(batch)
            write(result, make(value) if value.__class__ is np.ndarray else tree(value))
        return result

    def convert_once(
        self,
        batch: Field,
        make: Callable[[Array], Field],
        tree: Callable[[Field], Field],
    ) -> Field:
        """Convert as `convert` does, once for each batch: SAC computes several losses of it, PPO one in each epoch."""
        if batch.fast is None:
            batch.fast = self.convert(batch, make, tree)
        return batch.fast


#: The layout of each subclass that holds arrays.
HOLDERS: dict[type, Layout] = {}
#: The layout of each other class of batches; None for a class with fields outside of slots.
LAYOUTS: dict[type, Layout | None] = {}


def find_layout(batch_class: type[Batch]) -> Layout | None:
    """Return the layout of a class of batches; None if it has fields outside of slots."""
    if batch_class not in LAYOUTS:
        attributes = [getattr(batch_class, each.name, None) for each in fields(batch_class)]
        slots = [slot for slot in attributes if isinstance(slot, MemberDescriptorType)]
        complete = len(slots) == len(attributes)
        LAYOUTS[batch_class] = Layout(batch_class, slots) if complete else None
    return LAYOUTS[batch_class]


def layout_of(batch: Batch) -> Layout | None:
    """Return the layout of a batch of arrays or of tensors; None if its class has fields outside of slots."""
    return HOLDERS.get(batch.__class__) or find_layout(batch.__class__)


def _tensor_property(slot: MemberDescriptorType) -> property:
    """Return the attribute of a field, which turns its arrays into tensors on the same memory."""

    def read(batch: Batch) -> Field:
        value = slot.__get__(batch)
        if value.__class__ is Tensor or value is None:
            return value
        value = tree_map(
            lambda leaf: leaf if isinstance(leaf, Tensor) else torch.from_numpy(leaf), value
        )
        if not is_compiling():
            slot.__set__(batch, value)
        return value

    def write(batch: Field, value: Field) -> None:
        slot.__set__(batch, value)
        batch.fast = None

    return property(read, write)


def _array(tree: Field) -> Field:
    if tree.__class__ is np.ndarray:
        return tree
    return tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf, tree)


def _identity(value: Field) -> Field:
    return value


def _to_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    return batch.map(lambda tensor: tensor.to(device, non_blocking=True))


def _standard_normal(
    batch: Batch,
    generator: np.random.Generator,
    shape: tuple[int, ...],
) -> Tensor:
    """Draw as `Batch.standard_normal` does, without reading the device of a field."""
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


def _reduce(batch: Batch, protocol: object) -> tuple[Field, ...]:
    """Copy or pickle a batch of tensors instead."""
    return _identity, (batch.map(_identity),)


def without_arrays(argument: Field) -> Field:
    """Return an argument of a loss; a batch of arrays as one of tensors, which torch can trace."""
    layout = HOLDERS.get(argument.__class__)
    return argument if layout is None else argument.map(_identity)


def observations(batch: Field) -> Field:
    """Return the observations of a batch, as an array if it holds arrays."""
    layout = HOLDERS.get(batch.__class__)
    return batch.obs if layout is None else layout.batch_class.obs.__get__(batch)


def from_arrays(batch_class: type[Batch], values: Sequence[Field]) -> Field:
    """Return a batch of arrays; see `batches.from_arrays`."""
    layout = find_layout(batch_class)
    defaults = () if layout is None else layout.defaults[len(values) :]
    weight, share, *others = values
    if layout is None or MISSING in defaults or isinstance(weight, Tensor):
        return NotImplemented
    share = _shares(weight) if share is None else share
    return layout.hold((weight, share, *others, *defaults))


def _shares(weight: Array) -> Array:
    """Return the factor of each row in a mean, of weights [..., B]."""
    return weight / (weight > 0).sum(-1, keepdims=True, dtype=np.float32).clip(1)


def minibatches(
    samples: Samples,
    size: int,
    generator: np.random.Generator,
) -> Field:
    """Yield the rows of a batch of arrays in random order; see `Samples.minibatches`."""
    layout = HOLDERS.get(samples.__class__)
    if layout is None:
        return NotImplemented
    weight, *_ = layout.read
    rows = len(weight(samples))
    return iter((samples,)) if size >= rows else _shuffle(layout, samples, rows, size, generator)


def _shuffle(
    layout: Layout,
    samples: Samples,
    rows: int,
    size: int,
    generator: np.random.Generator,
) -> Iterator[Samples]:
    weight, _, *rest = layout.arrays(samples)
    count = rows // size
    order = generator.permutation(rows)[: count * size]
    weight, *rest = (tree_map(lambda array: array.take(order, 0), each) for each in (weight, *rest))
    yield from _split_rows(layout, list(_shares(weight.reshape(count, size))), (weight, *rest))


def split(batch: Batch, size: int, share: Tensor) -> Field:
    """Yield the rows of a batch of arrays in order; see `Batch.split`."""
    layout = HOLDERS.get(batch.__class__)
    if layout is None:
        return NotImplemented
    weight, _, *rest = layout.arrays(batch)
    return _split_rows(layout, [share.numpy()] * (len(weight) // size), (weight, *rest))


def _split_rows(
    layout: Layout,
    shares: list[Array],
    values: Iterable[Field],
) -> Iterator[Field]:
    """Yield batches of equal size, as views of the rows of one batch; `shares` has the factors [B] of each."""
    weight, *rest = (_split_tree(value, len(shares)) for value in values)
    return map(layout.hold, zip(weight, shares, *rest, strict=True))


def _split_tree(tree: Field, count: int) -> Sequence[Field]:
    if tree is None:
        return [None] * count
    if isinstance(tree, dict):
        if not tree:
            return [{} for _ in range(count)]
        columns = [_split_tree(each, count) for each in tree.values()]
        return [dict(zip(tree, values, strict=True)) for values in zip(*columns, strict=True)]
    return list(tree.reshape(count, len(tree) // count, *tree.shape[1:]))

"""Dense networks on the same inputs, in one call forward and one backward, on several threads.

Torch's threads share each product and wait for each other after it; one of them computes everything between two
products. Here each thread computes one network, or some of its rows, for the whole pass. On one thread nothing is
gained, so networks are computed layer by layer there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from math import gcd
from operator import is_not, mul
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.gradients import Gradients, PerGradient
from rlplug_core.fast.layer_ops import LinearOp, Op
from rlplug_core.fast.matmul import faster, small_in_numpy
from rlplug_core.fast.numba_loops import available, call_on_threads, has_scipy
from rlplug_core.fast.program import Chain
from rlplug_core.types import Array

if TYPE_CHECKING:
    from rlplug_core.fast.loops.parallel import Networks

#: Threads pay off from this number of multiplications in a forward pass.
WORTH = 2**20
#: The smallest number of rows in a block.
ROWS = 64


@cache
def pass_loops() -> ModuleType | None:
    """Return the module of numba's passes, or None: they need SciPy, and products on one thread each."""
    if not available() or not has_scipy() or faster() or not small_in_numpy():
        return None
    return import_module("rlplug_core.fast.loops.parallel")


class Member(Protocol):
    """A recorded network: its operations, and the addresses of its parameters at its last check."""

    chain: Chain
    places: list[int]


class FlatGradient(NamedTuple):
    """A flat gradient, the place of each parameter in it [n, L, 2] (-1: not trained), and the `id`s of trained ones."""

    array: Array
    places: Array
    trained: frozenset[int]


@dataclass(frozen=True)
class Form:
    """The layers of networks that are all alike.

    Attributes:
        sizes, functions: as in `loops.parallel.Networks`.
        parameters: for each network, the weight and the bias of each layer in turn.
        outputs, saved, weights: numbers of one network: outputs of the last layer, of all layers, and parameters.
        work: multiplications of all networks for one row.
        gradient: finds the places of the parameters in a flat gradient.
    """

    sizes: Array
    functions: Array
    parameters: list[list[nn.Parameter]]
    outputs: int
    saved: int
    weights: int
    work: int
    gradient: PerGradient[FlatGradient]


class ParallelDense:
    """Forward and backward passes of networks on the same inputs.

    Args:
        members: the networks; the caller checks them before each call.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.has_form = False
        self.form: Form | None = None
        #: The addresses of the parameters of `networks`; None if the parameters are not adjacent.
        self.places: list[list[int]] = []
        self.networks: Networks | None = None

    def is_faster(self, values: Array) -> bool:
        """Return whether threads are faster for values [B, I] than one layer after the other."""
        if not self.has_form:
            self.form = _form([member.chain for member in self.members])
            self.has_form = True
        form = self.form
        if form is None or len(values) * form.work < WORTH or values.dtype != np.float32:
            return False
        places = [member.places for member in self.members]
        if len(self.places) == 0 or any(map(is_not, self.places, places)):
            self.places = places
            self.networks = _networks(form)
        return self.networks is not None

    def __call__(self, values: FastTensor) -> FastTensor:
        """Compute the outputs [n, B, O] of all networks, after `is_faster` returned True."""
        loops = pass_loops()
        form = self.form
        networks = self.networks
        threads = torch.get_num_threads()
        assert loops is not None
        assert form is not None
        assert networks is not None
        array = _writable(values.value)
        count = len(self.members)
        rows = len(array)
        blocks = max(1, min(threads // gcd(count, threads), rows // ROWS))
        saved = np.empty((count, rows * form.saved), np.float32)
        call_on_threads(loops.forward, threads, *(networks, array, saved, blocks))
        outputs = saved[:, -rows * form.outputs :].reshape(count, rows, form.outputs)
        if not torch.is_grad_enabled():
            return FastTensor(outputs)
        sources = (values,) if values.requires_grad else ()

        def backward(gradient: Array, into: Gradients) -> list[Array]:
            flat = form.gradient(into)
            block_gradients = np.empty(
                (count * blocks, form.weights if flat.trained else 0), np.float32
            )
            below = np.empty((count, *array.shape) if sources else (count, 0, 0), np.float32)
            arguments = (
                networks,
                (array, saved),
                blocks,
                _writable(gradient),
                (block_gradients, below),
            )
            call_on_threads(loops.backward, threads, *arguments)
            if flat.trained:
                into.zero -= flat.trained
                parts = block_gradients.reshape(count, blocks, -1)
                call_on_threads(loops.add, threads, networks, parts, *flat[:2])
            return [np.add.reduce(below, 0)] if sources else []

        return FastTensor(outputs, sources, backward)


def _writable(values: Array) -> Array:
    """Return contiguous values that could be written to; loops are compiled for these only."""
    return values if values.flags.carray else np.array(values, order="C")


def _flat_gradient(
    parameters: list[list[nn.Parameter]],
    into: Gradients,
) -> FlatGradient:
    views = [[into.get(one) for one in each] for each in parameters]
    known = [view for each in views for view in each if view is not None]
    flat = known[0].base if known else np.empty(0, np.float32)
    assert flat is not None
    assert all(view.base is flat for view in known)  # an optimizer's gradient is one array
    start = flat.ctypes.data
    trained = frozenset(id(one) for each in parameters for one in each if one in into)
    places = [
        [-1 if view is None else (view.ctypes.data - start) // flat.itemsize for view in each]
        for each in views
    ]
    return FlatGradient(flat, np.array(places).reshape(len(views), -1, 2), trained)


def _networks(form: Form) -> Networks | None:
    """Return the networks if no two parameters are the same, and all are in one memory: threads write all at once."""
    every = [one for each in form.parameters for one in each]
    memories = {one.untyped_storage().data_ptr() for one in every}
    adjacent = len(memories) == 1 and all(map(Tensor.is_contiguous, every))
    if not adjacent or len({one.data_ptr() for one in every}) < len(every):
        return None
    flat = torch.empty(0).set_(every[0].untyped_storage()).numpy()
    places = np.array([one.storage_offset() for one in every]).reshape(len(form.parameters), -1, 2)
    return flat, places, form.sizes, form.functions


def _form(chains: Sequence[Chain]) -> Form | None:
    """Return the form of networks, or None if they differ or loops cannot compute them."""
    loops = pass_loops()
    if loops is None:
        return None
    kinds = [[_kind(op, loops.NAMES) for op in chain.ops] for chain in chains]
    layers = [layer for layer in kinds[0] if layer is not None]
    if not layers or len(layers) < len(kinds[0]) or any(kind != layers for kind in kinds):
        return None
    widths, outputs, functions = zip(*layers, strict=True)
    work = sum(map(mul, widths, outputs))
    parameters = [chain.parameters for chain in chains]
    return Form(
        np.array([*widths, outputs[-1]]),
        np.array(functions),
        parameters,
        outputs=outputs[-1],
        saved=sum(outputs),
        weights=work + sum(outputs),
        work=len(chains) * work,
        gradient=PerGradient(partial(_flat_gradient, parameters)),
    )


def _kind(op: Op, names: tuple[str, ...]) -> tuple[int, int, int] | None:
    """Return inputs, outputs and the number of the activation of a linear layer with a bias; None for other layers."""
    if not isinstance(op, LinearOp) or len(op.bias) != 1:
        return None
    name = "" if op.then is None else op.then.name
    if name not in names or (op.then is not None and not name):
        return None
    outputs, inputs = op.weight.shape
    return inputs, outputs, names.index(name)

"""Dense networks on the same inputs, in one call forward and one backward, on several threads.

Torch's threads share each product and wait for each other after it; one of them computes everything between two
products. Here each thread computes one network, or some of its rows, for the whole pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from math import gcd
from operator import is_not
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import nn

from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.dense_pass import (
    FlatGradient,
    common_memory,
    dense_loops,
    flat_gradient,
    layer_kinds,
    layer_table,
    writable,
)
from rlplug_core.fast.gradients import Gradients, PerGradient
from rlplug_core.fast.matmul import faster
from rlplug_core.fast.numba_loops import call_on_threads
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
    """Return the module of numba's passes on threads, or None; they are not used if oneDNN is faster."""
    if dense_loops() is None or faster():
        return None
    return import_module("rlplug_core.fast.loops.parallel")


class Member(Protocol):
    """A recorded network: its operations, and the addresses of its parameters at its last check."""

    chain: Chain
    places: list[int]


@dataclass(frozen=True)
class Form:
    """The layers of networks that are all alike.

    Attributes:
        kinds: inputs, outputs and the activation of each layer.
        parameters: for each network, the weight and the bias of each layer in turn.
        places: places of the parameters of one network [L, 2] in an array with only these.
        hidden, outputs, weights: numbers of one network: outputs of all layers but the last, of the last, and
            parameters.
        work: multiplications of all networks for one row.
        gradient: finds the places of the parameters in a flat gradient.
    """

    kinds: list[tuple[int, int, int]]
    parameters: list[list[nn.Parameter]]
    places: Array
    hidden: int
    outputs: int
    weights: int
    work: int
    gradient: PerGradient[FlatGradient | None]


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
        array = writable(values.value)
        count = len(self.members)
        rows = len(array)
        blocks = max(1, min(threads // gcd(count, threads), rows // ROWS))
        hidden = np.empty((count, rows * form.hidden), np.float32)
        outputs = np.empty((count, rows, form.outputs), np.float32)
        results = hidden, outputs
        call_on_threads(loops.forward, threads, *(networks, array, results, blocks))
        if not torch.is_grad_enabled():
            return FastTensor(outputs)
        sources = (values,) if values.requires_grad else ()

        def backward(gradient: Array, into: Gradients) -> list[Array]:
            flat = form.gradient(into)
            assert (
                flat is not None
            )  # gradients of optimizers and of `FastLoss.backward` are one array
            trained = len(flat.array)
            block_gradients = np.empty((count * blocks, form.weights if trained else 0), np.float32)
            below = np.empty((count, *array.shape) if sources else (count, 0, 0), np.float32)
            seen = array, hidden, outputs
            arguments = (
                networks,
                seen,
                blocks,
                writable(gradient),
                (block_gradients, form.places, below),
            )
            call_on_threads(loops.backward, threads, *arguments)
            if trained:
                into.zero.difference_update(id(one) for each in form.parameters for one in each)
                parts = block_gradients.reshape(count, blocks, -1), form.places
                call_on_threads(loops.add, threads, *(networks[1], parts, *flat))
            return [np.add.reduce(below, 0)] if sources else []

        return FastTensor(outputs, sources, backward)


def _networks(form: Form) -> Networks | None:
    """Return the networks if no two parameters are the same, and all are in one memory: threads write all at once."""
    memory = common_memory([one for each in form.parameters for one in each])
    if memory is None:
        return None
    return memory, np.array([layer_table(each, form.kinds) for each in form.parameters])


def _form(chains: Sequence[Chain]) -> Form | None:
    """Return the form of networks, or None if they differ or loops cannot compute them."""
    if pass_loops() is None:
        return None
    first, *others = (layer_kinds(chain.ops) for chain in chains)
    if not first or any(kinds != first for kinds in others):
        return None
    parameters = [chain.parameters for chain in chains]
    sizes = [size for inputs, outputs, _ in first for size in (inputs * outputs, outputs)]
    return Form(
        first,
        parameters,
        places=np.cumsum([0, *sizes[:-1]]).reshape(-1, 2),
        hidden=sum(sizes[1:-1:2]),
        outputs=sizes[-1],
        weights=sum(sizes),
        work=len(chains) * sum(sizes[::2]),
        gradient=PerGradient(partial(flat_gradient, parameters)),
    )

"""Dense networks on the same inputs, on several threads: one call forward and one backward.

Torch's threads share each product and wait for each other after it, and one of them computes everything between two
products. Here each thread computes the whole pass of one network, or of some of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
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
from rlplug_core.fast.matmul import onednn_is_faster
from rlplug_core.fast.numba_loops import call_on_threads
from rlplug_core.fast.program import Chain
from rlplug_core.types import Array

if TYPE_CHECKING:
    from rlplug_core.fast.loops.parallel import Networks

#: Threads are faster from this number of multiplications in a forward pass.
THREADS_MINIMUM = 2**20
#: The smallest number of rows that a thread computes.
MIN_ROWS = 64


@cache
def pass_loops() -> ModuleType | None:
    """Return the module of numba's passes on threads; None without `dense_loops`, or if oneDNN is faster."""
    if dense_loops() is None or onednn_is_faster():
        return None
    return import_module("rlplug_core.fast.loops.parallel")


class Member(Protocol):
    """A recorded network: its operations, and the memory addresses of its parameters at its last check."""

    chain: Chain
    addresses: list[int]


@dataclass(frozen=True)
class Form:
    """The form of several networks that have the same layers.

    Attributes:
        kinds: the inputs, the outputs and the activation of each layer.
        parameters: for each network, the weight and the bias of each layer in turn.
        places: [L, 2] the places of the weight and the bias of each layer in a vector of the parameters of one network.
        hidden, outputs: the number of outputs of all layers but the last, and of the last.
        size: the number of parameters of one network.
        work: multiplications of all networks for one row.
        gradient: returns the flat gradient of the networks.
    """

    kinds: list[tuple[int, int, int]]
    parameters: list[list[nn.Parameter]]
    places: Array
    hidden: int
    outputs: int
    size: int
    work: int
    gradient: PerGradient[FlatGradient | None]


class ParallelDense:
    """Forward and backward passes of networks on the same inputs.

    Args:
        members: the networks; the caller checks them before each call.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        #: The memory addresses of the parameters, for each network, when `networks` was made.
        self.addresses: list[list[int]] = []
        #: The networks, as loops take them; None if the parameters are not in one array.
        self.networks: Networks | None = None

    @cached_property
    def form(self) -> Form | None:
        """Return the form of the networks; None if loops cannot compute them together."""
        return _form([member.chain for member in self.members])

    def is_faster(self, values: Array) -> bool:
        """Return whether these passes are faster for values [B, I] than one layer after the other."""
        form = self.form
        if form is None or len(values) * form.work < THREADS_MINIMUM or values.dtype != np.float32:
            return False
        addresses = [member.addresses for member in self.members]
        if not self.addresses or any(map(is_not, self.addresses, addresses)):
            self.addresses = addresses
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
        blocks = max(1, min(threads // gcd(count, threads), rows // MIN_ROWS))
        hidden = np.empty((count, rows * form.hidden), np.float32)
        outputs = np.empty((count, rows, form.outputs), np.float32)
        arguments = networks, array, (hidden, outputs), blocks
        call_on_threads(loops.forward, threads, *arguments)
        if not torch.is_grad_enabled():
            return FastTensor(outputs)
        sources = (values,) if values.requires_grad else ()

        def backward(gradient: Array, into: Gradients) -> list[Array]:
            flat = form.gradient(into)
            # Optimizers and `FastLoss.backward` have their gradients in one array.
            assert flat is not None
            trained = len(flat.array)
            block_gradients = np.empty((count * blocks, form.size if trained else 0), np.float32)
            below = np.empty((count, *array.shape) if sources else (count, 0, 0), np.float32)
            forward_pass = array, hidden, outputs
            results = block_gradients, form.places, below
            backward_arguments = networks, forward_pass, blocks, writable(gradient), results
            call_on_threads(loops.backward, threads, *backward_arguments)
            if trained:
                into.zero.difference_update(
                    id(parameter) for network in form.parameters for parameter in network
                )
                block_results = block_gradients.reshape(count, blocks, -1), form.places
                call_on_threads(loops.add, threads, *(networks[1], block_results, *flat))
            return [np.add.reduce(below, 0)] if sources else []

        return FastTensor(outputs, sources, backward)


def _networks(form: Form) -> Networks | None:
    """Return the networks; None unless their parameters are in one array, no two of them the same."""
    memory = common_memory([parameter for network in form.parameters for parameter in network])
    if memory is None:
        return None
    return memory, np.array([layer_table(each, form.kinds) for each in form.parameters])


def _form(chains: Sequence[Chain]) -> Form | None:
    """Return the form of networks; None if they differ, or if loops cannot compute them."""
    if pass_loops() is None:
        return None
    kinds, *rest = (layer_kinds(chain.ops) for chain in chains)
    if not kinds or any(each != kinds for each in rest):
        return None
    parameters = [chain.parameters for chain in chains]
    outputs = [out for _, out, _ in kinds]
    sizes = [size for inputs, out, _ in kinds for size in (inputs * out, out)]
    return Form(
        kinds,
        parameters,
        places=np.cumsum([0, *sizes[:-1]]).reshape(-1, 2),
        hidden=sum(outputs[:-1]),
        outputs=outputs[-1],
        size=sum(sizes),
        work=len(chains) * sum(inputs * out for inputs, out, _ in kinds),
        gradient=PerGradient(partial(flat_gradient, parameters)),
    )

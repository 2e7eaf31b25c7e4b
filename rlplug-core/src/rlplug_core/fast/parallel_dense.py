"""Dense networks that see the same inputs, in one call each way: every thread takes a network or a share of the rows.

Threads of torch's share each product, wait for each other behind it, and leave what is between two products to one of
them. Here they part once for a whole pass. On one thread nothing is gained, so rules go layer by layer there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
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

#: Multiplications on the way up from which it pays.
WORTH = 2**20
#: Rows that a block has at least.
ROWS = 64


@cache
def pass_loops() -> ModuleType | None:
    """Return the module of numba's passes, or None; their products need SciPy and one thread for each of its own."""
    if not available() or not has_scipy() or faster() or not small_in_numpy():
        return None
    from rlplug_core.fast.loops import parallel

    return parallel


class Member(Protocol):
    """A network that goes by rules: its tape, and where its parameters were when it was last asked `why_not`."""

    chain: Chain
    places: list[int]


class Gradient(NamedTuple):
    """A flat gradient, where each parameter [n, L, 2] begins there, -1 for those not wanted, and those that are."""

    array: Array
    places: Array
    wanted: frozenset[int]


@dataclass(frozen=True)
class Form:
    """Networks of the same dense layers, wherever their parameters are.

    Attributes:
        sizes, functions: as `compiled_passes.Networks` has them.
        parameters: the weight and the bias of each layer, one after the other, of each network.
        outputs, kept, weights: numbers of one network: its outputs, those of all layers, its parameters.
        work: multiplications of all networks for one row.
        gradient: finds where gradient_above of the parameters are added up.
    """

    sizes: Array
    functions: Array
    parameters: list[list[nn.Parameter]]
    outputs: int
    kept: int
    weights: int
    work: int
    gradient: PerGradient[Gradient]


class ParallelDense:
    """Ways up and down through networks that see the same inputs.

    Args:
        members: they are asked `why_not` before each call.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.asked = False
        self.form: Form | None = None
        #: Where the parameters were when they were last looked up; no networks where they lie apart.
        self.looked: list[list[int]] = []
        self.networks: Networks | None = None

    def pays(self, values: Array) -> bool:
        """Return whether values [B, I] are better taken through here than layer by layer, on more than one thread."""
        if not self.asked:
            self.form = _form([member.chain for member in self.members])
            self.asked = True
        form = self.form
        if form is None or len(values) * form.work < WORTH or values.dtype != np.float32:
            return False
        if len(self.looked) == 0 or any(
            map(is_not, self.looked, [member.places for member in self.members])
        ):
            self.looked = [member.places for member in self.members]
            self.networks = _networks(form)
        return self.networks is not None

    def __call__(self, values: FastTensor) -> FastTensor:
        """Outputs [n, B, O] of all networks: a node, or an array where torch's gradients are off. It pays."""
        loops = pass_loops()
        form = self.form
        networks = self.networks
        threads = torch.get_num_threads()
        assert loops is not None
        assert form is not None
        assert networks is not None
        array = _plain(values.value)
        count = len(self.members)
        rows = len(array)
        blocks = max(1, min(threads // gcd(count, threads), rows // ROWS))
        kept = np.empty((count, rows * form.kept), np.float32)
        call_on_threads(loops.up, threads, *(networks, array, kept, blocks))
        outputs = kept[:, -rows * form.outputs :].reshape(count, rows, form.outputs)
        if not torch.is_grad_enabled():
            return FastTensor(outputs)
        sources = (values,) if values.requires_grad else ()

        def back(gradient_above: Array, into: Gradients) -> list[Array]:
            gradient = form.gradient(into)
            own = np.empty((count * blocks, form.weights if gradient.wanted else 0), np.float32)
            below = np.empty((count, *array.shape) if sources else (count, 0, 0), np.float32)
            given = networks, (array, kept), blocks, _plain(gradient_above), (own, below)
            call_on_threads(loops.down, threads, *given)
            if gradient.wanted:
                into.zero -= gradient.wanted
                apart = own.reshape(count, blocks, -1)
                call_on_threads(loops.add, threads, networks, apart, *gradient[:2])
            return [np.add.reduce(below, 0)] if sources else []

        return FastTensor(outputs, sources, back)


def _plain(values: Array) -> Array:
    """Return values as loops are compiled for: in order, and such that they could be written to."""
    return values if values.flags.carray else np.array(values, order="C")


def _gradient(parameters: list[list[nn.Parameter]], into: Gradients) -> Gradient:
    views = [[into.get(one) for one in each] for each in parameters]
    wanted = [view for each in views for view in each if view is not None]
    flat = wanted[0].base if wanted else np.empty(0, np.float32)
    assert flat is not None
    assert all(view.base is flat for view in wanted)  # `Gradients` says so
    begin = flat.ctypes.data
    trained = frozenset(id(one) for each in parameters for one in each if one in into)
    places = [
        [-1 if view is None else (view.ctypes.data - begin) // flat.itemsize for view in each]
        for each in views
    ]
    return Gradient(flat, np.array(places).reshape(len(views), -1, 2), trained)


def _networks(form: Form) -> Networks | None:
    """Return the networks where all their parameters lie in the same memory, each once: threads add to all at once."""
    every = [one for each in form.parameters for one in each]
    in_one = len({one.untyped_storage().data_ptr() for one in every}) == 1 and all(
        map(Tensor.is_contiguous, every)
    )
    if not in_one or len({one.data_ptr() for one in every}) < len(every):
        return None
    flat = torch.empty(0).set_(every[0].untyped_storage()).numpy()
    places = np.array([one.storage_offset() for one in every]).reshape(len(form.parameters), -1, 2)
    return flat, places, form.sizes, form.functions


def _form(chains: Sequence[Chain]) -> Form | None:
    """Return the form of these tapes, or None where they have not the same one or no pass can go through them."""
    loops = pass_loops()
    known = list(chains)
    if loops is None:
        return None
    kinds = [[_kind(op, loops.NAMES) for op in chain.ops] for chain in known]
    layers = [layer for layer in kinds[0] if layer is not None]
    if not layers or len(layers) < len(kinds[0]) or any(kind != layers for kind in kinds):
        return None
    widths, outs, functions = zip(*layers, strict=True)
    work = sum(map(mul, widths, outs))
    parameters = [chain.parameters for chain in known]
    return Form(
        np.array([*widths, outs[-1]]),
        np.array(functions),
        parameters,
        outputs=outs[-1],
        kept=sum(outs),
        weights=work + sum(outs),
        work=len(known) * work,
        gradient=PerGradient(partial(_gradient, parameters)),
    )


def _kind(op: Op, names: tuple[str, ...]) -> tuple[int, int, int] | None:
    """Return inputs, outputs and the number of the function of a linear layer with a bias; None for other layers."""
    if not isinstance(op, LinearOp) or len(op.bias) != 1:
        return None
    name = "" if op.then is None else op.then.name
    fits = name in names and (op.then is None or name)
    outputs, inputs = op.weight.shape
    return (inputs, outputs, names.index(name)) if fits else None

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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.nets.bfloat16_rules import HiddenInBfloat16
from rlplug_core.nets.layer_rules import Affine, Rule
from rlplug_core.nets.loops import available, has_scipy, shared
from rlplug_core.nets.node import Into, Node, PerGradient
from rlplug_core.nets.products import faster, small_in_numpy
from rlplug_core.nets.tape import Tape
from rlplug_core.types import Array

if TYPE_CHECKING:
    from rlplug_core.nets.compiled_passes import Networks

#: Multiplications on the way up from which it pays.
WORTH = 2**20
#: Rows that a block has at least.
ROWS = 64


@cache
def pass_loops() -> ModuleType | None:
    """Return the module of numba's passes, or None; their products need SciPy and one thread for each of its own."""
    if not available() or not has_scipy() or faster() or not small_in_numpy():
        return None
    from rlplug_core.nets import compiled_passes

    return compiled_passes


class Member(Protocol):
    """A network that goes by rules: its tape, and where its parameters were when it was last asked `why_not`."""

    tape: Tape | None
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
        gradient: finds where slopes of the parameters are added up.
    """

    sizes: Array
    functions: Array
    parameters: list[list[nn.Parameter]]
    outputs: int
    kept: int
    weights: int
    work: int
    gradient: PerGradient[Gradient]


class Passes:
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

    def pay(self, values: Array) -> bool:
        """Return whether values [B, I] are better taken through here than layer by layer, on more than one thread."""
        if not self.asked:
            self.form = _form([member.tape for member in self.members])
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

    def __call__(self, values: Array | Node) -> Any:
        """Outputs [n, B, O] of all networks: a node, or an array where torch's gradients are off. It pays."""
        loops = pass_loops()
        form = self.form
        networks = self.networks
        threads = torch.get_num_threads()
        assert loops is not None
        assert form is not None
        assert networks is not None
        array = _plain(values.value if isinstance(values, Node) else values)
        count = len(self.members)
        rows = len(array)
        blocks = max(1, min(threads // gcd(count, threads), rows // ROWS))
        kept = np.empty((count, rows * form.kept), np.float32)
        shared(loops.up, threads, *(networks, array, kept, blocks))
        outputs = kept[:, -rows * form.outputs :].reshape(count, rows, form.outputs)
        if not torch.is_grad_enabled():
            return outputs
        sources = (values,) if isinstance(values, Node) else ()

        def back(slopes: Array, into: Into) -> list[Array]:
            gradient = form.gradient(into)
            own = np.empty((count * blocks, form.weights if gradient.wanted else 0), np.float32)
            below = np.empty((count, *array.shape) if sources else (count, 0, 0), np.float32)
            given = networks, (array, kept), blocks, _plain(slopes), (own, below)
            shared(loops.down, threads, *given)
            if gradient.wanted:
                into.zero -= gradient.wanted
                apart = own.reshape(count, blocks, -1)
                shared(loops.add, threads, networks, apart, *gradient[:2])
            return [np.add.reduce(below, 0)] if sources else []

        return Node(outputs, sources, back)

    def __getstate__(self) -> dict[str, object]:
        """A copy looks for its own parameters."""
        return {"members": self.members}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["members"])  # type: ignore[misc]  # as if it were made anew


def _plain(values: Array) -> Array:
    """Return values as loops are compiled for: in order, and such that they could be written to."""
    return values if values.flags.carray else np.array(values, order="C")


def _gradient(parameters: list[list[nn.Parameter]], into: Into) -> Gradient:
    views = [[into.get(one) for one in each] for each in parameters]
    wanted = [view for each in views for view in each if view is not None]
    flat = wanted[0].base if wanted else np.empty(0, np.float32)
    assert flat is not None
    assert all(view.base is flat for view in wanted)  # `Into` says so
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


def _form(tapes: Sequence[Tape | None]) -> Form | None:
    """Return the form of these tapes, or None where they have not the same one or no pass can go through them."""
    loops = pass_loops()
    known = [tape for tape in tapes if tape is not None]
    if loops is None:
        return None
    kinds = [
        [_kind(layer, loops.NAMES) for rule in tape.rules for layer in _layers(rule)]
        for tape in known
    ]
    layers = [layer for layer in kinds[0] if layer is not None]
    if not layers or len(layers) < len(kinds[0]) or any(kind != layers for kind in kinds):
        return None
    widths, outs, functions = zip(*layers, strict=True)
    work = sum(map(mul, widths, outs))
    parameters = [tape.parameters for tape in known]
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


def _layers(rule: Rule) -> Sequence[Rule]:
    """Return the layers of a rule; those that may round to bfloat16 stay exact here, where that is faster."""
    return rule.layers if isinstance(rule, HiddenInBfloat16) else [rule]


def _kind(rule: Rule, names: tuple[str, ...]) -> tuple[int, int, int] | None:
    """Return inputs, outputs and the number of the function of a linear layer with a bias; None for other rules."""
    if not isinstance(rule, Affine) or len(rule.bias) != 1:
        return None
    name = "" if rule.then is None else rule.then.name
    fits = name in names and (rule.then is None or name)
    return (rule.layer.in_features, rule.layer.out_features, names.index(name)) if fits else None

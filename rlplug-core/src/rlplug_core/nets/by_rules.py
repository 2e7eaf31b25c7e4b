"""Networks of known layers in numpy, both ways: arrays in, a `Node` out whose slopes reach the parameters.

    through = ByRules(encoder, output)
    if not through.why_not():
        values = through(obs)           # a node; without gradients an array

It is what `torch.no_grad` and autograd would give, up to rounding, without a graph of tensors: on small networks that
graph takes longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import is_not
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from rlplug_core.nets.activation_rules import FUNCTIONS
from rlplug_core.nets.bfloat16_rules import HiddenInBfloat16
from rlplug_core.nets.layer_rules import Affine, Normal, Rule
from rlplug_core.nets.node import Into, Node, PerGradient
from rlplug_core.nets.passes import Passes
from rlplug_core.nets.products import has_bfloat16
from rlplug_core.nets.tape import Stop, Tape
from rlplug_core.types import Array


@runtime_checkable
class SupportsRules(Protocol):
    """Networks that may go by rules: called on arrays they give nodes."""

    def why_not(self) -> str:
        """Say what keeps them from going by rules now; nothing is an empty text."""
        ...


def why_not(networks: object) -> str:
    """Return what keeps `networks` from going by rules now, or nothing; those that cannot say have no rule."""
    kind = type(networks)
    if (
        kind not in _SUPPORT
    ):  # found out once for a class: it is asked before every update, and takes a while
        _SUPPORT[kind] = isinstance(networks, SupportsRules)
    return (
        cast(SupportsRules, networks).why_not()
        if _SUPPORT[kind]
        else f"{kind.__name__} has no rule"
    )


#: Whether a class is a kind of `SupportsRules`.
_SUPPORT: dict[type[object], bool] = {}
#: The rules that find slopes, the parameters whose slopes they add up, by `id`, and whether each is of one rule alone.
Way: TypeAlias = tuple[list[Stop], frozenset[int], bool]


class NoRule(Exception):
    """A module has no rule; the message is its name."""


#: What makes the rules of a module of exactly this class. Whoever writes a layer may add its own.
FORMS: dict[type[nn.Module], Callable[[Any], list[Rule]]] = {
    nn.Linear: lambda layer: [Affine(layer)],
    nn.LayerNorm: lambda layer: [Normal(layer)],
    nn.Sequential: lambda layers: [rule for layer in layers for rule in rules_of(layer)],
    nn.Identity: lambda layer: [],
    nn.Tanh: lambda layer: [FUNCTIONS[torch.tanh]],
    nn.ReLU: lambda layer: [FUNCTIONS[torch.relu]],
    nn.SiLU: lambda layer: [FUNCTIONS[nn.functional.silu]],
}


def rules_of(module: nn.Module) -> list[Rule]:
    """The rules of a module, first to last.

    Raises:
        NoRule: it, or something in it, has none.
    """
    if type(module) not in FORMS:
        raise NoRule(type(module).__name__)
    return FORMS[type(module)](module)


def dense_rules(
    linears: Iterable[nn.Module],
    norms: Iterable[nn.Module],
    activation: Callable[..., Any],
    last: bool = False,
) -> list[Rule]:
    """Those of linear layers, each with its norm, if any, and the activation, which with `last` the last one lacks.

    Raises:
        NoRule: a layer has none, or the activation.
    """
    if activation not in FUNCTIONS:
        raise NoRule(activation.__name__)
    layers = [rules_of(layer) for layer in linears]
    function: list[Rule] = [FUNCTIONS[activation]]
    between = [[*rules_of(norm), *function] for norm in norms] or [function] * len(layers)
    if last:
        between[len(layers) - 1 :] = [[]]
    return [rule for layer, then in zip(layers, between, strict=True) for rule in (*layer, *then)]


def rules_in_bfloat16(
    linears: Iterable[nn.Module], norms: Iterable[nn.Module], activation: Callable[..., Any]
) -> list[Rule]:
    """Those of linear layers with their activations, rounding to bfloat16 where a processor has instructions for it.

    Raises:
        NoRule: the activation has none, or there are norms.
    """
    if not has_bfloat16():
        return dense_rules(linears, norms, activation)
    if activation not in FUNCTIONS or list(norms):
        raise NoRule(
            f"{activation.__name__} in bfloat16"
            if activation not in FUNCTIONS
            else "a norm in bfloat16"
        )
    layers: list[Any] = list(linears)
    return [HiddenInBfloat16(layers, FUNCTIONS[activation])] if layers else []


class ByRules:
    """Modules one after the other, called on arrays [B, F]; the tape is made when it is first asked for.

    Args:
        modules: first to last.
        single: whether the one output [B, 1] is given as [B].
    """

    def __init__(self, *modules: nn.Module, single: bool = False) -> None:
        self.modules = modules
        self.single = single
        self.tape: Tape | None = None
        self.missing = ""
        self.places: list[int] = []
        #: Ways down, without slopes at the inputs and with them.
        self.ways = [PerGradient(partial(self._way, inputs)) for inputs in (False, True)]
        self.passes = Passes([self])

    def __call__(self, values: Array | Node) -> Any:
        """Outputs [B, O]: a node, or an array where torch's gradients are off. `why_not` has been asked before."""
        tape = self.tape
        assert tape is not None
        array = values.value if isinstance(values, Node) else values
        single = self.single
        if torch.get_num_threads() > 1 and self.passes.pay(array):
            found = self.passes(values).squeeze(0)
            return found.squeeze(-1) if single else found
        if not torch.is_grad_enabled():
            outputs = tape.forward(array)
            return outputs[:, 0] if single else outputs
        outputs, kept = tape.up(array)
        sources = (values,) if isinstance(values, Node) else ()

        def back(slopes: Array, into: Into) -> list[Array]:
            inputs = bool(sources)
            way, trained, apart = self.ways[inputs](into)
            fresh = apart and trained <= into.zero
            into.zero -= trained
            passed = tape.along(way, slopes[:, None] if single else slopes, kept, inputs, fresh)
            return [] if passed is None else [passed]

        return Node(outputs[:, 0] if single else outputs, sources, back)

    def _way(self, inputs: bool, into: Into) -> Way:
        """Return the way down, to the inputs too if wanted."""
        assert self.tape is not None
        parameters = self.tape.parameters
        trained = frozenset(id(one) for one in parameters if one in into)
        apart = len(set(map(id, parameters))) == len(parameters)
        return self.tape.way(inputs, [into.get(one) for one in parameters]), trained, apart

    def why_not(self) -> str:
        """Return what keeps these modules from going by rules now; empty where nothing does.

        It is looked at anew each time: modules may have got hooks or other parameters, and these may have moved.
        """
        tape = self.tape or self._find()
        if tape is None:
            return f"{self.missing} has no rule"
        if any(map(is_not, map(dict.get, self.owners, self.names), self.known)):
            return "parameters were replaced"
        if any(self.hooks) or _has_any_global_hook():
            return "a module has a hook"
        places = list(map(Tensor.data_ptr, tape.parameters))
        if places != self.places:
            if any(not one.is_cpu or one.dtype is not torch.float32 for one in tape.parameters):
                return "parameters are not float32 on the CPU"
            tape.look()
            self.places = places
        return ""

    def _find(self) -> Tape | None:
        if self.missing:
            return None
        try:
            self.tape = Tape([rule for module in self.modules for rule in rules_of(module)])
        except NoRule as missing:
            self.missing = str(missing)
            return None
        inner = [one for module in self.modules for one in module.modules()]
        #: Where each parameter is looked up by whoever calls the modules, under which name, and which one it was.
        self.owners = [owner._parameters for owner in inner for _ in owner._parameters]
        self.names = [name for owner in inner for name in owner._parameters]
        self.known = list(map(dict.get, self.owners, self.names))
        #: What hooks are added to.
        self.hooks = [hooks for one in inner for hooks in _hooks(one)]
        return self.tape

    def __getstate__(self) -> dict[str, object]:
        """A copy makes a tape of its own."""
        return {"modules": self.modules, "single": self.single}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["modules"], single=state["single"])  # type: ignore[misc]


def _hooks(module: nn.Module) -> tuple[dict[int, Callable[..., Any]], ...]:
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )

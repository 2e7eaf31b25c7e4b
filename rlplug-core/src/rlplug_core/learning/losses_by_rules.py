"""Losses written for torch, by rules where they come to the same on arrays, without a line from their authors.

A loss marked `pure` is computed both ways when it is first met in an update. Where numbers and gradients agree, it is
given arrays from then on, and whoever called it gets tensors as before, which autograd can differentiate. All else
stays with autograd, and `Algorithm.gradients` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.batches import Batch, Samples, Transitions
from rlplug_core.learning.trees import Leaves, mapped
from rlplug_core.nets.by_rules import SupportsRules
from rlplug_core.nets.node import Into, Node
from rlplug_core.types import Array

#: A loss as a function of the learner and its arguments: it returns numbers in a tree, a differentiable one among them.
Loss: TypeAlias = Callable[..., Any]
#: What a loss raises on arrays where it asks them for what only tensors have.
UNFIT = (
    AssertionError, AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
#: How far the two ways may be apart in float32, in proportion to each number and to the largest beside it.
NEAR, BESIDE = 1e-3, 1e-5


class LossesByRules:
    """Computes the losses of one learner, on arrays where that comes to the same.

    Attributes:
        off: whether it stays away, since the author says `in_numpy`, or the learner compiles or is not on the CPU.
        open: whether an update is under way; outside of one a loss is what its author wrote.
        reasons: why each loss that was met stays with autograd, by its name; empty where it does not.
    """

    def __init__(self, off: bool) -> None:
        self.off, self.open = off, False
        self.reasons: dict[str, str] = {}
        self.gradient: Gradient | None = None
        self.networks: list[nn.Module] = []

    def __getstate__(self) -> dict[str, Any]:
        """A copy adds up slopes in its own parameters."""
        return {**self.__dict__, "gradient": None, "networks": []}

    def call(self, loss: Loss, learner: Any, *args: Any, **named: Any) -> Any:
        """Return what `loss` does for a learner and further arguments."""
        known = self.reasons.get(loss.__qualname__)
        if known is not None and not learner.gradients:  # it was loaded
            self._tell(learner)
        if known or not args or not isinstance(args[0], Samples | Transitions) or not torch.is_grad_enabled():
            return loss(learner, *args, **named)
        if self.gradient is None or not self.gradient.fits():
            self.gradient, self.networks = Gradient(learner), outermost(learner)
        if reason := self.gradient.why_not or learner.why_not_rules(args[0], *self.networks):
            learner.tell_gradients(reason)
            return loss(learner, *args, **named)
        self.open = False  # what it calls is a part of it
        try:
            return (self._both if known is None else self._fast)(loss, learner, args, named)
        finally:
            self.open = True

    def _fast(self, loss: Loss, learner: Any, args: Any, named: Any) -> Any:
        with suppress(*UNFIT):  # an option or a shape may lead where its first call did not
            return self._on_arrays(loss, learner, args, named)
        return loss(learner, *args, **named)

    def _both(self, loss: Loss, learner: Any, args: Any, named: Any) -> Any:
        """Compute it on tensors, and find out whether arrays come to the same from now on."""
        plain = loss(learner, *args, **named)
        try:
            reason = self._apart(plain, self._on_arrays(loss, learner, args, named))
        except UNFIT as error:
            reason = f"needs tensors: {' '.join(str(error).split()) or type(error).__name__}"
        self.reasons[loss.__qualname__] = f"{loss.__qualname__} {reason}" if reason else ""
        self._tell(learner)
        return plain

    def _tell(self, learner: Any) -> None:
        learner.tell_gradients("; ".join(filter(None, self.reasons.values())))

    def _on_arrays(self, loss: Loss, learner: Any, args: Any, named: Any) -> Any:
        """Compute it on arrays; return tensors that autograd can differentiate."""
        assert self.gradient is not None
        given, options = ([_arrays(one) for one in args], {name: _arrays(one) for name, one in named.items()})
        with np.errstate(all="ignore"):  # the optimizer looks for what is no number
            result = loss(learner, *given, **options)
        roots: list[Node] = []
        mapped(result, lambda one: roots.append(one) if isinstance(one, Node) else None)
        way = Way(roots, self.gradient, lambda: loss(learner, *args, **named))
        made = iter(Through.apply(way, *way.gradient.known))  # type: ignore[no-untyped-call]
        return mapped(result, lambda one: next(made) if isinstance(one, Node) else _tensor(one))

    def _apart(self, plain: Any, fast: Any) -> str:
        """Return why `fast` is not what `plain` is, in numbers or in gradients; nothing if it is."""
        assert self.gradient is not None
        one, other = Leaves(plain), Leaves(fast)
        wanted, roots = ([each for each in leaves.tensors if each.requires_grad] for leaves in (one, other))
        if one.unknown or one.kind != other.kind or not wanted or len(wanted) != len(roots):
            return "gives something else for arrays than for tensors"
        slopes = (_slopes(each, self.gradient.known) for each in (wanted, roots))
        same = _near(one.tensors, other.tensors) and _near(*slopes)
        return "" if same else "is another number on arrays"


class Gradient:
    """Arrays in which slopes of a learner's parameters are added up; they stay, since rules remember them."""

    def __init__(self, learner: Any) -> None:
        self.every = list(learner.parameters())
        self.wanted = [one.requires_grad for one in self.every]
        self.known = [one for one in self.every if one.requires_grad]
        trained = all(one.requires_grad for optimizer in learner.optimizers for one in optimizer.parameters)
        self.why_not = "" if trained else "a parameter of an optimizer wants no gradient"
        self.sizes = [one.numel() for one in self.known]
        self.flat = torch.zeros(sum(self.sizes))
        parts = np.split(self.flat.numpy(), np.cumsum(self.sizes))  # with nothing behind the last
        self.into: Into = {one: part.reshape(one.shape) for one, part in zip(self.known, parts, strict=False)}

    def fits(self) -> bool:
        """Say whether the same parameters still want a gradient."""
        return [one.requires_grad for one in self.every] == self.wanted

    def of(self, total: Node) -> list[Tensor]:
        """The slopes of a number in each parameter."""
        self.flat.numpy().fill(0)
        total.backward(self.into)
        return [part.view(one.shape) for one, part in zip(self.known, self.flat.clone().split(self.sizes), strict=True)]


@dataclass
class Way:
    """A way down from what a loss returned to all parameters; `again` computes the loss on tensors."""

    roots: Sequence[Node]
    gradient: Gradient
    again: Callable[[], Any]

    def down(self, slopes: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The slopes in each parameter from those at the roots; by autograd where they are to have slopes, too."""
        if torch.is_grad_enabled():
            return self._by_autograd(slopes)
        total: Any = None
        for root, slope in zip(self.roots, slopes, strict=True):
            if slope is not None:
                part = root * slope.item() if root.value.ndim == 0 else root.dot(slope.numpy())
                total = part if total is None else total + part
        return self.gradient.of(total)

    def _by_autograd(self, slopes: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        roots = [one for one in Leaves(self.again()).tensors if one.requires_grad]
        pairs = [(root, slope) for root, slope in zip(roots, slopes, strict=True) if slope is not None]
        wanted, given = zip(*pairs, strict=True)
        return torch.autograd.grad(wanted, self.gradient.known, given, create_graph=True, allow_unused=True)


class Through(torch.autograd.Function):
    """Numbers that a loss returned, as functions of all parameters."""

    @staticmethod
    def forward(ctx: Any, way: Way, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.way = way
        ctx.set_materialize_grads(False)
        if any(root.value.ndim > 1 for root in way.roots) or not way.roots:
            raise TypeError("it returns no numbers [] or [B] that have a gradient")
        if any(one.dtype is not torch.float32 for one in parameters):
            raise TypeError("there are parameters of another type than float32")
        return tuple(torch.from_numpy(np.asarray(root.value)) for root in way.roots)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.way.down(slopes)


#: The class of the gradient functions of what `Through` returned.
THROUGH: type[Any] = Through._backward_cls


def taken(loss: Tensor) -> Node:
    """Return the node behind a loss of `Through`'s: an optimizer goes down from it by rules, without tensors."""
    made: Any = loss.grad_fn
    root: Node = made.way.roots[loss.output_nr]
    return root


def outermost(module: nn.Module) -> list[nn.Module]:
    """The networks within a module that can go by rules, without those within them."""
    found: list[nn.Module] = []
    for child in module.children():
        found += [child] if isinstance(child, SupportsRules) else outermost(child)
    return found


def _slopes(roots: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    total = torch.stack([root.sum() for root in roots]).sum()
    found = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(one) if slope is None else slope for one, slope in zip(parameters, found, strict=True)]


def _near(numbers: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    largest = max(float(one.detach().abs().max()) for one in numbers if one.numel())
    pairs = zip(numbers, others, strict=True)
    return all(torch.allclose(*pair, rtol=NEAR, atol=BESIDE * largest) for pair in pairs)


def _arrays(argument: Any) -> Any:
    """An argument with arrays for its tensors."""
    if isinstance(argument, Batch):
        return argument.in_numpy()
    return mapped(argument, lambda one: one.numpy() if isinstance(one, Tensor) else one)


def _tensor(value: Any) -> Any:
    """Return what a loss gave beside its nodes, as it would be for tensors."""
    if isinstance(value, np.ndarray | np.generic):
        array: Array = np.asarray(value)
        return torch.from_numpy(array)
    return value

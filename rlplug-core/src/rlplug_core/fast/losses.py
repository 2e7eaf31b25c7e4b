"""Losses run on arrays if everything in them can, else by autograd. The choice is made at every call.

A loss marked `pure` gets its tensors as `FastTensor`s. Where it meets something that these cannot do, it is computed
again from tensors: a pure loss may be computed twice. What comes back is tensors, and for the loss a `FastLoss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import OVERRIDING, Function
from rlplug_core.batches import Batch
from rlplug_core.fast.array import FastTensor, Gradients, NoFastPath, from_tensor
from rlplug_core.fast.matmul import small_in_numpy
from rlplug_core.fast.numba_loops import has_scipy, why_not_numba
from rlplug_core.fast.trace import hooks_of
from rlplug_core.learning.optimizer import backward
from rlplug_core.types import Array

#: What is told where numpy may take several threads for each product.
SLOW = (
    "fast, with torch's products: numpy was imported before rlplug and may use several threads; set "
    "OPENBLAS_NUM_THREADS=1"
)
#: Plain values of an argument, and the shapes of its tensors: losses that are called with equal ones go the same way.
Call = tuple[object, ...]


def how() -> str:
    """Return what computes a fast loss here, and what is wrong or missing."""
    if not small_in_numpy():
        return SLOW
    if missing := why_not_numba():
        return f"fast; {missing}" if "no use" in missing else "fast"
    enough = torch.get_num_threads() == 1 or has_scipy()
    return "fast, with loops by numba" + (
        "" if enough else "; without SciPy, threads share single products"
    )


class FastLosses:
    """Runs the losses of one learner.

    Attributes:
        told: for each loss by name, how its gradient was computed and why.
        plain: names of losses that autograd computes from now on, because a learner asked more of one than
            `Optimizer.minimize` does. It is saved, so that a resumed run goes the same way.
    """

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.plain: set[str] = set()
        #: Calls of each loss that had no fast path.
        self.failed: dict[str, tuple[Call, str]] = {}
        self.hooks: list[dict[int, Function]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy belongs to another learner, which looks at its own modules."""
        return _copy, (self.told, self.plain)

    def call(self, loss: Function, learner: Any, *args: object, **named: object) -> Any:
        """Return what `loss` returns for the learner and these arguments."""
        name = loss.__name__
        reason = self._reason_for_autograd(name, learner, args)
        if not reason:
            try:
                result = loss(
                    learner, *map(_to_fast, args), **{k: _to_fast(v) for k, v in named.items()}
                )
                found = _Results(self, loss, learner, args, named).converted(result)
            except (NoFastPath, TypeError) as missing:  # or a function of torch's without a way in
                reason = f"{missing} has no fast path"
                self.failed[name] = (_call(args), reason)
            else:
                self._tell(name, how())
                return found
        self._tell(name, f"autograd: {reason}")
        return loss(learner, *args, **named)

    def _tell(self, name: str, told: str) -> None:
        if self.told.get(name) != told:
            self.told[name] = told

    def _reason_for_autograd(self, name: str, learner: Any, args: Sequence[object]) -> str:
        """Return why a loss is left to autograd without trying, or nothing."""
        if name in self.plain:
            return "more is asked of the loss than a step of its optimizer"
        if self.hooks is None:
            self.hooks = [hooks for one in learner.modules() for hooks in hooks_of(one)]
        if any(self.hooks):
            return "a module has a hook"
        for one in args:
            if isinstance(one, Batch) and not _is_vector(one, learner):
                return "observations are neither vectors of float32 nor Discrete"
        known = self.failed.get(name)
        return known[1] if known is not None and known[0] == _call(args) else ""


def _copy(told: dict[str, str], plain: set[str]) -> FastLosses:
    made = FastLosses()
    made.told = dict(told)
    made.plain = set(plain)
    return made


def _is_vector(batch: Any, learner: Any) -> bool:
    obs = batch.obs
    if isinstance(obs, Tensor) and obs.ndim == 2 and obs.dtype is torch.float32:
        return True
    return isinstance(learner.spec.obs, spaces.Discrete | spaces.MultiDiscrete)


def _call(args: Sequence[object]) -> Call:
    """Return what decides which way a pure loss goes: shapes of tensors, and all other arguments."""
    return tuple(_key(one) for one in args)


def _key(one: object) -> object:
    if isinstance(one, Tensor):
        return tuple(one.shape), one.dtype
    if isinstance(one, Batch):
        return type(one), _key(one._mapped(_key))
    if isinstance(one, dict):
        return tuple((name, _key(part)) for name, part in one.items())
    return tuple(map(_key, one)) if isinstance(one, list | tuple) else one


def _to_fast(one: Any) -> Any:
    """Return an argument with its tensors as FastTensors."""
    if isinstance(one, Tensor):
        return one if one.requires_grad else from_tensor(one)
    if isinstance(one, Batch):
        arrays: Any = {"share": from_tensor(one.counts), **one._mapped(_to_fast)}
        return type(one)(**arrays)
    if isinstance(one, dict):
        return {name: _to_fast(part) for name, part in one.items()}
    return type(one)(map(_to_fast, one)) if isinstance(one, list | tuple) else one


class _Results:
    """The results of one call, and the same by autograd if they are asked for."""

    def __init__(
        self,
        losses: FastLosses,
        loss: Function,
        learner: nn.Module,
        args: Sequence[object],
        named: dict[str, object],
    ) -> None:
        self.losses = losses
        self.loss = loss
        self.learner = learner
        self.args = args
        self.named = named
        self.plain: list[Tensor] | None = None
        self.count = 0

    def converted(self, result: Any) -> Any:
        """Return a result with tensors in the place of FastTensors, and a FastLoss for one with a gradient."""
        if result.__class__ is FastTensor:
            self.count += 1
            if result.requires_grad:
                return FastLoss.of(result, self, self.count - 1)
            return torch.from_numpy(np.asarray(result.value))
        if isinstance(result, dict):
            return {name: self.converted(part) for name, part in result.items()}
        if isinstance(result, list | tuple):
            return type(result)(map(self.converted, result))
        if isinstance(result, Tensor):
            self.count += 1
            if result.requires_grad:
                raise NoFastPath("a result that autograd computed")
        return result

    def by_autograd(self, place: int) -> Tensor:
        """Compute the results again from tensors, and from now on at once."""
        if self.plain is None:
            name = self.loss.__name__
            self.losses.plain.add(name)
            with torch.enable_grad():
                self.plain = list(_tensors(self.loss(self.learner, *self.args, **self.named)))
        return self.plain[place]


def _tensors(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        return _tensors(list(result.values()))
    return (
        [one for part in result for one in _tensors(part)]
        if isinstance(result, list | tuple)
        else []
    )


class FastLoss(Tensor):
    """A loss with a gradient that the fast room computes. All else that is asked of it, autograd's own loss answers."""

    array: FastTensor
    results: _Results
    place: int

    @staticmethod
    def of(array: FastTensor, results: _Results, place: int) -> FastLoss:
        """Make the loss of an array, one of the results of a call."""
        value = torch.from_numpy(np.asarray(array.value))
        loss: FastLoss = Tensor._make_subclass(FastLoss, value)
        loss.array = array
        loss.results = results
        loss.place = place
        return loss

    def item(self) -> Any:
        return float(self.array.value)

    def detach(self) -> Tensor:
        return torch.from_numpy(np.asarray(self.array.value))

    def backward(self, *args: Any, **named: Any) -> None:
        """Add the gradient to `.grad` of the learner's parameters, as a tensor's `backward` does."""
        learner = self.results.learner
        wanted = [one for one in learner.parameters() if one.requires_grad]
        if args or named or any(map(_has_hooks, wanted)):
            self.by_autograd.backward(*args, **named)
            return
        into = Gradients({one: np.zeros(one.shape, one.detach().numpy().dtype) for one in wanted})
        self.array.backward_into(into)
        for parameter, gradient in into.items():
            if id(parameter) in into.zero:
                continue
            if parameter.grad is None:
                parameter.grad = torch.from_numpy(gradient)
            else:
                parameter.grad += torch.from_numpy(gradient)

    @property
    def by_autograd(self) -> Tensor:
        """The same loss, computed again from tensors."""
        return self.results.by_autograd(self.place)

    @classmethod
    def __torch_function__(
        cls,
        function: Function,
        types: object,
        args: Sequence[Any] = (),
        named: dict[str, Any] | None = None,
    ) -> Any:
        if function is backward:
            return _fill_gradient(*args)
        if function == REQUIRES_GRAD:
            return True
        if function.__name__ == "__get__" and function not in GRADIENTS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args)
        plain = [_plain(one) for one in args]
        return function(*plain, **{name: _plain(one) for name, one in (named or {}).items()})


OVERRIDING.add(FastLoss)
#: Attributes of a tensor that are about its gradient: autograd's own loss has them, and this one has a gradient.
REQUIRES_GRAD = getattr(Tensor, "requires_grad").__get__  # noqa: B009 - mypy takes it for a bool
GRADIENTS = [getattr(Tensor, name).__get__ for name in ("grad_fn", "grad", "is_leaf")]


def _plain(one: Any) -> Any:
    if isinstance(one, FastLoss):
        return one.by_autograd
    return type(one)(map(_plain, one)) if isinstance(one, list | tuple) else one


def _has_hooks(parameter: nn.Parameter) -> bool:
    return bool(parameter._backward_hooks) or bool(
        getattr(parameter, "_post_accumulate_grad_hooks", None)
    )


#: The gradients of each optimizer by parameter, by the `id` of its flat gradient, with that gradient.
KNOWN: dict[int, tuple[Tensor, Gradients]] = {}
#: For how many optimizers they are remembered.
MOST = 64


def _fill_gradient(loss: FastLoss, parameters: list[nn.Parameter], gradient: Tensor) -> None:
    """Write a gradient into the flat one of an optimizer, which is zero."""
    if any(map(_has_hooks, parameters)):
        backward(loss.by_autograd, parameters, gradient)
        return
    known = KNOWN.get(id(gradient))
    if known is None or known[0] is not gradient:
        if len(KNOWN) >= MOST:
            KNOWN.clear()
        ends = np.cumsum([one.numel() for one in parameters])[:-1]
        parts = zip(parameters, np.split(gradient.numpy(), ends), strict=True)
        arrays: dict[nn.Parameter, Array] = {one: part.reshape(one.shape) for one, part in parts}
        known = KNOWN[id(gradient)] = gradient, Gradients(arrays)
    into = known[1]
    into.zero |= into.every
    loss.array.backward_into(into)

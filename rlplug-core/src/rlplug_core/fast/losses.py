"""Runs losses on arrays if every function in them has a fast path, else by autograd; each call chooses again.

A loss marked `pure` gets its tensors as `FastTensor`s. If it calls a function that these do not have, it is computed
again from tensors, so a pure loss may be computed twice. Its results are tensors; the loss itself is a `FastLoss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import OVERRIDING, Function
from rlplug_core.batches import Batch
from rlplug_core.fast.array import FastTensor, from_tensor
from rlplug_core.fast.array_batches import Field, layout_of, observations, without_arrays
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.fast.hooks import HookCheck, hooks_of_modules, hooks_of_parameters
from rlplug_core.fast.metrics import Metrics
from rlplug_core.fast.numba_loops import describe_speed
from rlplug_core.learning.optimizer import backward
from rlplug_core.types import Array, Obs, Space

FLOAT32 = np.dtype(np.float32)
#: The arguments of a call, with shapes in place of tensors; calls with equal keys use the same path.
CallKey = tuple[object, ...]


class FastLosses:
    """Runs the losses of one learner.

    Attributes:
        paths: for each loss by name, how its gradient was computed and why.
        autograd_only: names of losses that autograd computes from now on, because a learner used one for more than
            `Optimizer.minimize`. They are saved, so that a resumed run uses autograd, too.
    """

    def __init__(self) -> None:
        self.paths: dict[str, str] = {}
        self.autograd_only: set[str] = set()
        #: For each loss the last call without a fast path, and the reason.
        self.failed: dict[str, tuple[CallKey, str]] = {}
        self.has_hooks: HookCheck | None = None
        #: The latest FastLosses of each loss; those that nothing else refers to are used again.
        self.spare: dict[str, list[FastLoss]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Copy or pickle without the hooks, which belong to this learner's modules."""
        return _copy, (self.paths, self.autograd_only)

    def call(
        self,
        loss: Function,
        learner: Field,
        *args: object,
        **kwargs: object,
    ) -> Field:
        """Return the result of `loss` for the learner and these arguments."""
        name = loss.__name__
        reason = self._reason_for_autograd(name, learner, args)
        if not reason:
            try:
                fast_named = {key: _to_fast(part) for key, part in kwargs.items()}
                result = loss(learner, *map(_to_fast, args), **fast_named)
                tensors = _Results(self, loss, learner, args, kwargs).convert(result)
            # Functions of torch without `__torch_function__` raise TypeError.
            except (NoFastPath, TypeError) as missing:
                reason = f"{missing} has no fast path"
                self.failed[name] = (_call_key(args), reason)
            else:
                path = describe_speed(torch.get_num_threads())
                if self.paths.get(name) is not path:
                    self.paths[name] = path
                return tensors
        self.paths[name] = f"autograd: {reason}"
        return loss(learner, *args, **kwargs)

    def without_gradient(
        self,
        function: Function,
        learner: Field,
        *args: object,
        **kwargs: object,
    ) -> Field:
        """Return the result of a function without a gradient for the learner and these arguments."""
        try:
            fast_named = {key: _to_fast(part) for key, part in kwargs.items()}
            result = function(learner, *map(_to_fast, args), **fast_named)
            return _Results(self, function, learner, args, kwargs).convert(result)
        except (NoFastPath, TypeError):
            return function(learner, *args, **kwargs)

    def compiled(
        self,
        loss: Function,
        learner: Field,
        *args: object,
        **kwargs: object,
    ) -> Field:
        """Return the result of a compiled loss, which takes only tensors."""
        return loss(learner, *map(without_arrays, args), **kwargs)

    def _reason_for_autograd(
        self,
        name: str,
        learner: Field,
        args: Sequence[object],
    ) -> str:
        """Return why autograd must compute a loss, or ""; it does not call the loss."""
        if name in self.autograd_only:
            return "the loss is used for more than the step of its optimizer"
        if self.has_hooks is None:
            self.has_hooks = hooks_of_modules(learner.modules())
        if self.has_hooks():
            return "a module has a hook"
        for argument in args:
            if isinstance(argument, Batch) and not _is_vector(
                observations(argument), learner.spec.obs
            ):
                return "observations are neither vectors of float32 nor Discrete"
        failed = self.failed.get(name)
        return failed[1] if failed is not None and failed[0] == _call_key(args) else ""


def _copy(paths: dict[str, str], autograd_only: set[str]) -> FastLosses:
    losses = FastLosses()
    losses.paths = dict(paths)
    losses.autograd_only = set(autograd_only)
    return losses


def _is_vector(obs: Obs, space: Space) -> bool:
    if obs.__class__ is np.ndarray and obs.ndim == 2 and obs.dtype == FLOAT32:
        return True
    if isinstance(obs, Tensor) and obs.ndim == 2 and obs.dtype is torch.float32:
        return True
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)


def _call_key(args: Sequence[object]) -> CallKey:
    """Return the key of a call, which decides its path: the shapes of tensors, and all other arguments."""
    return tuple(_key(argument) for argument in args)


def _key(argument: object) -> object:
    if isinstance(argument, Tensor):
        return tuple(argument.shape), argument.dtype
    if isinstance(argument, Batch):
        return type(argument), _key(argument._map_fields(_key))
    if isinstance(argument, dict):
        return tuple((name, _key(part)) for name, part in argument.items())
    return tuple(map(_key, argument)) if isinstance(argument, list | tuple) else argument


def _to_fast(argument: Field) -> Field:
    """Return an argument with its tensors as FastTensors."""
    if argument is None:
        return None
    if isinstance(argument, Tensor):
        return argument if argument.requires_grad else from_tensor(argument)
    if isinstance(argument, Batch):
        layout = layout_of(argument)
        if layout is None:
            return argument.map(_to_fast)
        convert = layout.convert_once if argument.__class__ is layout.holder else layout.convert
        return convert(argument, FastTensor, _field)
    if isinstance(argument, dict):  # `dict.items` makes no tensors of `Metrics`
        return {name: _to_fast(part) for name, part in dict.items(argument)}
    if isinstance(argument, list | tuple):
        return type(argument)(map(_to_fast, argument))
    return argument


def _field(value: Field) -> Field:
    """Return a field of a batch, of tensors or of arrays, with FastTensors."""
    if value.__class__ is np.ndarray:
        return FastTensor(value)
    if isinstance(value, dict):
        return {name: _field(part) for name, part in value.items()}
    return _to_fast(value)


class _Results:
    """The results of one call of a loss; when one is first requested, autograd computes all of them again."""

    __slots__ = ("args", "autograd_results", "count", "function", "kwargs", "learner", "losses")

    def __init__(
        self,
        losses: FastLosses,
        function: Function,
        learner: nn.Module,
        args: Sequence[object],
        kwargs: dict[str, object],
    ) -> None:
        self.losses = losses
        self.function = function
        self.learner = learner
        self.args = args
        self.kwargs = kwargs
        self.autograd_results: list[Tensor] | None = None
        #: The number of tensors in the results so far, which gives each one its index.
        self.count = 0

    def convert(self, result: Field) -> Field:
        """Return a result with tensors instead of FastTensors, and a FastLoss instead of one with a gradient."""
        kind = result.__class__
        if kind is FastTensor:
            self.count += 1
            if result.backward_of is not None:
                return self._fast_loss(result, self.count - 1)
            return torch.from_numpy(np.asarray(result.value))
        if kind is tuple:
            return tuple(map(self.convert, result))
        if kind is dict and _are_constants(result):
            self.count += len(result)
            return Metrics(result)
        if isinstance(result, dict):
            return dict(zip(result, map(self.convert, result.values()), strict=True))
        if isinstance(result, list | tuple):
            return type(result)(map(self.convert, result))
        if isinstance(result, Tensor):
            self.count += 1
            if result.requires_grad:
                raise NoFastPath("a result that autograd computed")
        return result

    def _fast_loss(self, array: FastTensor, index: int) -> FastLoss:
        """Return an array as a loss; it uses an unused FastLoss again, because torch takes long to make a tensor."""
        spare = self.losses.spare.setdefault(self.function.__name__, [])
        unused = [n for n in range(len(spare)) if getrefcount(spare[n]) == ONLY_SPARE]
        loss: FastLoss = spare[unused[0]] if unused else Tensor._make_subclass(FastLoss, UNREAD)
        if not unused and len(spare) < MOST_SPARE:
            spare.append(loss)
        loss.array = array
        loss.results = self
        loss.result_index = index
        return loss

    def by_autograd(self, index: int) -> Tensor:
        """Compute the results again from tensors, and let autograd compute this loss from now on."""
        if self.autograd_results is None:
            name = self.function.__name__
            self.losses.autograd_only.add(name)
            with torch.enable_grad():
                result = self.function(self.learner, *self.args, **self.kwargs)
            self.autograd_results = _tensors(result)
        return self.autograd_results[index]


def _are_constants(values: dict[str, Field]) -> bool:
    """Return whether all values are FastTensors without a gradient."""
    for value in values.values():  # noqa: SIM110 - a generator takes twice as long
        if value.__class__ is not FastTensor or value.backward_of is not None:
            return False
    return True


def _tensors(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        return _tensors(list(result.values()))
    if isinstance(result, list | tuple):
        return [tensor for part in result for tensor in _tensors(part)]
    return []


#: The memory of every FastLoss. Nothing reads it, because each operation and attribute goes through
#: `FastLoss.__torch_function__`.
UNREAD = torch.zeros((), device="cpu")
#: The result of `getrefcount` for an object in a list if nothing else refers to it; its argument counts, too.
ONLY_SPARE = 2
#: The largest number of unused losses of a name: a caller still refers to the last loss while it computes the next.
MOST_SPARE = 2


class FastLoss(Tensor):
    """A loss with a fast gradient for `minimize` and `backward`; for most other operations autograd computes it."""

    array: FastTensor
    results: _Results
    result_index: int

    def item(self) -> float:
        return float(self.array.value)

    def detach(self) -> Tensor:
        return torch.from_numpy(np.asarray(self.array.value))

    def backward(self, *args: Field, **kwargs: Field) -> None:
        """Add the gradient to `.grad` of the learner's parameters, as a tensor's `backward` does."""
        learner = self.results.learner
        parameters = [each for each in learner.parameters() if each.requires_grad]
        is_used = self.array.backward_of is None
        has_other_types = any(each.dtype is not torch.float32 for each in parameters)
        if is_used or has_other_types or args or kwargs or hooks_of_parameters(parameters)():
            self.by_autograd.backward(*args, **kwargs)
            return
        count = sum(each.numel() for each in parameters)
        into = _views(np.zeros(count, np.float32), parameters)
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
        """Return the same loss, computed again from tensors."""
        return self.results.by_autograd(self.result_index)

    @classmethod
    def __torch_function__(
        cls,
        function: Function,
        types: object,
        args: Sequence[Field] = (),
        kwargs: dict[str, Field] | None = None,
    ) -> Field:
        if function is backward:
            return _fill_gradient(*args)
        if function == REQUIRES_GRAD:
            return True
        if function.__name__ == "__get__" and function not in GRADIENTS:
            return function(
                *(each.detach() if isinstance(each, FastLoss) else each for each in args)
            )
        plain = [_with_autograd(argument) for argument in args]
        plain_named = {name: _with_autograd(argument) for name, argument in (kwargs or {}).items()}
        return function(*plain, **plain_named)


OVERRIDING[FastLoss] = FastLoss.__torch_function__
#: Attributes about the gradient: a FastLoss requires a gradient; for the others autograd computes the loss.
REQUIRES_GRAD = getattr(Tensor, "requires_grad").__get__  # noqa: B009 - mypy takes it for a bool
GRADIENTS = [getattr(Tensor, name).__get__ for name in ("grad_fn", "grad", "is_leaf")]


def _with_autograd(argument: Field) -> Field:
    """Return an argument with autograd's losses instead of FastLosses."""
    if isinstance(argument, FastLoss):
        return argument.by_autograd
    if isinstance(argument, list | tuple):
        return type(argument)(map(_with_autograd, argument))
    return argument


#: For each optimizer, by the `id` of its flat gradient: this gradient, views of it for each parameter, and a check for
#: hooks.
CACHE: dict[int, tuple[Tensor, Gradients, HookCheck]] = {}
#: The largest number of optimizers in `CACHE`.
MOST_CACHED = 64


def _fill_gradient(
    loss: FastLoss,
    parameters: list[nn.Parameter],
    gradient: Tensor,
) -> None:
    """Write the gradient of a loss into an optimizer's flat gradient."""
    entry = CACHE.get(id(gradient))
    if entry is None or entry[0] is not gradient:
        if len(CACHE) >= MOST_CACHED:
            CACHE.clear()
        into = _views(gradient.numpy(), parameters)
        entry = CACHE[id(gradient)] = gradient, into, hooks_of_parameters(parameters)
    _, into, has_hooks = entry
    if has_hooks():
        backward(loss.by_autograd, parameters, gradient)
        return
    into.zero |= into.every
    array = loss.array
    if array.backward_of is None:  # an earlier step has already used the gradient
        backward(loss.by_autograd, parameters, gradient)
        return
    array.backward_into(into)
    # This frees the arrays of the loss, so the next one uses their memory while it is still in the processor's cache.
    loss.array = array.detach()


def _views(flat: Array, parameters: list[nn.Parameter]) -> Gradients:
    """Return views of a flat gradient for each parameter."""
    ends = np.cumsum([parameter.numel() for parameter in parameters])[:-1]
    pairs = zip(parameters, np.split(flat, ends), strict=True)
    return Gradients({parameter: view.reshape(parameter.shape) for parameter, view in pairs})

"""Arrays that know their gradient: what a loss computes with when the fast room runs it.

A `FastTensor` is a NumPy array with torch's functions and methods (`__torch_function__`), so that a loss written for
tensors runs on it unchanged. What it cannot do raises `NoFastPath` with the name of the function, and autograd computes
the loss instead. Tests hold both ways equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count
from typing import Any, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import NETWORKS, OVERRIDING, Function
from rlplug_core.fast.numba_loops import head_loops
from rlplug_core.types import Array


class NoFastPath(Exception):
    """The fast room cannot compute something; the message says what."""


class Gradients(dict[nn.Parameter, Array]):
    """Arrays to which gradients are added, by parameter.

    Attributes:
        every: the parameters, by `id`.
        zero: those with arrays that are zero: the first gradient may be written there, which takes less time than to
            add it. Code that adds to an array takes its parameter out.
    """

    def __init__(self, arrays: Mapping[nn.Parameter, Array]) -> None:
        super().__init__(arrays)
        self.every = frozenset(map(id, self))
        self.zero: set[int] = set(self.every)

    def add(self, parameter: nn.Parameter, gradient: Array) -> None:
        """Add a gradient to the array of a parameter, if it has one."""
        if parameter in self:
            self[parameter][...] += gradient
            self.zero.discard(id(parameter))


#: The gradient at a result to the gradient at each of its sources.
Backward: TypeAlias = Callable[[Array, Gradients], Sequence[Array | None]]

T = TypeVar("T")
#: What a function takes besides a FastTensor: tensors and numbers.
Operand: TypeAlias = "FastTensor | Tensor | float"
#: `float` is a method of tensors.
Number: TypeAlias = float
#: Gradients about which something is remembered: there is one for each optimizer.
MOST = 8
_numbers = count()


class PerGradient(Generic[T]):
    """Finds something out about `Gradients`, and remembers it: an optimizer hands over the same ones at each update."""

    def __init__(self, find: Callable[[Gradients], T]) -> None:
        self.find = find
        self.known: dict[int, tuple[Gradients, T]] = {}

    def __call__(self, into: Gradients) -> T:
        known = self.known.get(id(into))
        if known is None or known[0] is not into:
            if len(self.known) == MOST:
                self.known.clear()
            known = self.known[id(into)] = into, self.find(into)
        return known[1]


class Sorted(NamedTuple):
    """The result of `FastTensor.sort`, as torch names it."""

    values: FastTensor
    indices: FastTensor


DTYPES = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
}


class FastTensor:
    """An array [...]; with `backward_of` and its sources, the result of a function that has a gradient."""

    __slots__ = ("backward_of", "number", "sources", "value")

    def __init__(
        self, value: Array, sources: Sequence[FastTensor] = (), backward_of: Backward | None = None
    ) -> None:
        self.value = value
        self.sources = sources
        self.backward_of = backward_of
        self.number = next(_numbers)

    @property
    def requires_grad(self) -> bool:
        return self.backward_of is not None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.value.dtype]

    @property
    def is_cpu(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.value)

    def numel(self) -> int:
        return self.value.size

    def dim(self) -> int:
        return self.value.ndim

    def size(self, axis: int | None = None) -> int | tuple[int, ...]:
        return self.value.shape if axis is None else self.value.shape[axis]

    def detach(self) -> FastTensor:
        """Return the values without a gradient."""
        return FastTensor(self.value) if self.backward_of is not None else self

    def __getattr__(self, name: str) -> NoReturn:
        raise NoFastPath(f"Tensor.{name}")

    def __bool__(self) -> NoReturn:
        raise NoFastPath("a branch on the values of a tensor")

    def __iter__(self) -> NoReturn:
        raise NoFastPath("a loop over a tensor")

    __float__ = __int__ = __bool__

    def __array_ufunc__(self, function: object, *_: object, **__: object) -> NoReturn:
        raise NoFastPath(f"numpy.{getattr(function, '__name__', function)}")

    def backward_into(self, into: Gradients) -> None:
        """Add the gradient of this number, in the parameters that `into` has, to the arrays there."""
        open_ = {self.number: (self, self.value.dtype.type(1))}
        while open_:
            part, gradient = open_.pop(max(open_))  # every result is younger than its sources
            assert part.backward_of is not None
            for source, below in zip(part.sources, part.backward_of(gradient, into), strict=True):
                number = source.number
                known = open_.get(number)
                open_[number] = source, below if known is None else known[1] + below

    @classmethod
    def __torch_function__(
        cls,
        function: Function,
        types: object,
        args: Sequence[object] = (),
        named: Mapping[str, object] | None = None,
    ) -> Any:
        """Do what torch's function, or one that is marked `overridable`, does."""
        known = FUNCTIONS.get(function)
        if known is None:
            if function in NETWORKS:
                return FUNCTIONS[network_call](function, *args, **(named or {}))
            if (known := _method_of(function)) is None:
                raise NoFastPath(name_of(function))
        try:
            return known(*args, **(named or {}))
        except TypeError as error:
            raise NoFastPath(f"{name_of(function)} with these arguments ({error})") from error

    def _unary(self, value: Array, derivative: object) -> FastTensor:
        """Return a function of this array, with the given derivative."""
        if self.backward_of is None or not torch.is_grad_enabled():
            return FastTensor(value)
        return FastTensor(value, (self,), lambda gradient, into: (gradient * derivative,))

    def _view(self, value: Array) -> FastTensor:
        """Return the same numbers in another shape."""
        if self.backward_of is None:
            return FastTensor(value)
        before = self.value.shape
        return FastTensor(value, (self,), lambda gradient, into: (gradient.reshape(before),))

    def __neg__(self) -> FastTensor:
        if self.backward_of is None:
            return FastTensor(-self.value)
        return FastTensor(-self.value, (self,), lambda gradient, into: (-gradient,))

    def __add__(self, other: Operand) -> FastTensor:
        other = operand(other)
        return _binary(self.value + raw(other), self, other, _same, _same)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> FastTensor:
        other = operand(other)
        return _binary(self.value - raw(other), self, other, _same, _negative)

    def __rsub__(self, other: Operand) -> FastTensor:
        other = operand(other)
        return _binary(raw(other) - self.value, self, other, _negative, _same)

    def __mul__(self, other: Operand) -> FastTensor:
        if other.__class__ is float and other == 0:  # no infinite gradient becomes NaN
            return FastTensor(self.value * other)
        other = operand(other)
        one = self.value
        two = raw(other)
        return _binary(one * two, self, other, lambda g: g * two, lambda g: g * one)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> FastTensor:
        other = operand(other)
        two = raw(other)
        value = self.value / two
        return _binary(value, self, other, lambda g: g / two, lambda g: g * (-value / two))

    def __rtruediv__(self, other: Operand) -> FastTensor:
        other = operand(other)
        two = self.value
        value = raw(other) / two
        return _binary(value, self, other, lambda g: g * (-value / two), lambda g: g / two)

    def __pow__(self, exponent: float) -> FastTensor:
        if not isinstance(exponent, int | float):
            raise NoFastPath("a power with an exponent that is not a number")
        return self._unary(self.value**exponent, exponent * self.value ** (exponent - 1))

    def __matmul__(self, other: Operand) -> FastTensor:
        if self.backward_of is not None or getattr(other, "requires_grad", False):
            raise NoFastPath("a matrix product with a gradient")
        return FastTensor(np.asarray(self.value.dot(raw(operand(other)))))

    def _compared(self, function: Callable[[Any, Any], Array], other: Operand) -> FastTensor:
        return FastTensor(function(self.value, raw(operand(other))))

    def __lt__(self, other: Operand) -> FastTensor:
        return self._compared(np.less, other)

    def __le__(self, other: Operand) -> FastTensor:
        return self._compared(np.less_equal, other)

    def __gt__(self, other: Operand) -> FastTensor:
        return self._compared(np.greater, other)

    def __ge__(self, other: Operand) -> FastTensor:
        return self._compared(np.greater_equal, other)

    def __eq__(self, other: object) -> FastTensor:  # type: ignore[override]  # as torch's
        return FastTensor(np.equal(self.value, raw(operand(other))))

    def __ne__(self, other: object) -> FastTensor:  # type: ignore[override]  # as torch's
        return FastTensor(np.not_equal(self.value, raw(operand(other))))

    __hash__ = object.__hash__

    def __getitem__(self, index: Any) -> FastTensor:
        if self.backward_of is not None:
            raise NoFastPath("an index into a tensor with a gradient")
        parts = index if isinstance(index, tuple) else (index,)
        if not all(part is None or part is ... or isinstance(part, int | slice) for part in parts):
            raise NoFastPath("an index that is not a slice")
        return FastTensor(np.asarray(self.value[index]))

    def float(self) -> FastTensor:
        if self.value.dtype == np.float32:
            return self
        if self.backward_of is not None:
            raise NoFastPath("a cast of a tensor with a gradient")
        return FastTensor(self.value.astype(np.float32))

    def long(self) -> FastTensor:
        return FastTensor(self.value.astype(np.int64))

    def exp(self) -> FastTensor:
        value = np.exp(self.value)
        return self._unary(value, value)

    def log(self) -> FastTensor:
        return self._unary(np.log(self.value), 1 / self.value)

    def sqrt(self) -> FastTensor:
        value = np.sqrt(self.value)
        return self._unary(value, 0.5 / value)

    def square(self) -> FastTensor:
        return self._unary(np.square(self.value), 2 * self.value)

    def abs(self) -> FastTensor:
        value = self.value
        sign = (value > 0).astype(value.dtype) - (value < 0)  # 0 for NaN, as torch's
        return self._unary(np.abs(value), sign)

    __abs__ = abs

    def tanh(self) -> FastTensor:
        value = np.tanh(self.value)
        return self._unary(value, 1 - value * value)

    def xlogy(self, other: FastTensor) -> FastTensor:
        """Compute x log y, 0 if x is 0."""
        if self.backward_of is not None or other.backward_of is not None:
            raise NoFastPath("xlogy with a gradient")
        safe = np.where(self.value > 0, other.value, other.value.dtype.type(1))
        return FastTensor(self.value * np.log(safe))

    def clamp(
        self, min: Number | None = None, max: Number | None = None
    ) -> FastTensor:  # torch's names
        """Hold values within bounds, which themselves count as inside."""
        for bound in (min, max):
            if bound is not None and not isinstance(bound, int | float):
                raise NoFastPath("a clamp with bounds that are not numbers")
        value = self.value if min is None else np.maximum(self.value, min)
        value = value if max is None else np.minimum(value, max)
        return self._unary(value, value == self.value)

    clip = clamp

    def minimum(self, other: Operand) -> FastTensor:
        """Compute the smaller one; equal ones have half of the gradient each."""
        other = operand(other)
        share = _first(raw(other) - self.value)
        value = np.minimum(self.value, raw(other))
        return _binary(value, self, other, lambda g: g * share, lambda g: g * (1 - share))

    def maximum(self, other: Operand) -> FastTensor:
        """Compute the larger one; equal ones have half of the gradient each."""
        other = operand(other)
        share = _first(self.value - raw(other))
        value = np.maximum(self.value, raw(other))
        return _binary(value, self, other, lambda g: g * share, lambda g: g * (1 - share))

    def sum(self, dim: int | None = None) -> FastTensor:
        """Sum along one axis, or over all."""
        if dim is None:
            return self.reshape(-1).sum(0)
        value = np.asarray(np.add.reduce(self.value, dim))
        if self.backward_of is None:
            return FastTensor(value)
        before = self.value.shape

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.empty(before, gradient.dtype)
            below[...] = _expand(gradient, dim)
            return (below,)

        return FastTensor(value, (self,), backward)

    def mean(self, dim: int | None = None) -> FastTensor:
        """Compute the means along one axis, or that of all."""
        return self.sum(dim) / (self.value.size if dim is None else self.shape[dim])

    def amin(self, dim: int) -> FastTensor:
        """Compute the smallest along one axis; equal ones share the gradient."""
        smallest = np.minimum.reduce(self.value, dim)
        if self.backward_of is None:
            return FastTensor(smallest)
        share = (self.value == _expand(smallest, dim)).astype(self.value.dtype)
        share /= np.add.reduce(share, dim, keepdims=True)
        return FastTensor(
            smallest, (self,), lambda gradient, into: (_expand(gradient, dim) * share,)
        )

    def argmax(self, dim: int) -> FastTensor:
        return FastTensor(self.value.argmax(dim))

    def sort(self, dim: int = -1) -> Sorted:
        if self.backward_of is not None:
            raise NoFastPath("sort with a gradient")
        return Sorted(FastTensor(np.sort(self.value, dim)), FastTensor(self.value.argsort(dim)))

    def unsqueeze(self, axis: int) -> FastTensor:
        return self._view(_expand(self.value, axis))

    def squeeze(self, axis: int) -> FastTensor:
        return self._view(self.value.squeeze(axis)) if self.value.shape[axis] == 1 else self

    def reshape(self, *shape: int | tuple[int, ...]) -> FastTensor:
        sizes: Any = shape
        return self._view(self.value.reshape(*sizes))

    view = reshape

    def flatten(self, start_dim: int = 0) -> FastTensor:
        return self._view(self.value.reshape(*self.value.shape[:start_dim], -1))

    def log_softmax(self, dim: int) -> FastTensor:
        """Compute log-probabilities along the last axis."""
        if dim not in (-1, self.value.ndim - 1):
            raise NoFastPath("log_softmax along another axis than the last one")
        value = self.value
        log_probs, probs = _log_softmax(np.ascontiguousarray(value).reshape(-1, value.shape[-1]))
        result = log_probs.reshape(value.shape)
        if self.backward_of is None:
            return FastTensor(result)
        share = probs.reshape(value.shape)
        return FastTensor(
            result,
            (self,),
            lambda g, into: (g - share * np.add.reduce(g, -1, keepdims=True),),
        )

    def gather(self, dim: int, index: Operand) -> FastTensor:
        """Take one number along the last axis of [..., n] for each row."""
        places = array_of(index)
        if dim not in (-1, self.value.ndim - 1) or places.shape != (*self.shape[:-1], 1):
            raise NoFastPath("gather of another shape than one number of each row")
        value = np.take_along_axis(self.value, places, -1)
        if self.backward_of is None:
            return FastTensor(value)
        before = self.value.shape

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.zeros(before, gradient.dtype)
            np.put_along_axis(below, places, gradient, -1)
            return (below,)

        return FastTensor(value, (self,), backward)

    def at(self, index: Array) -> FastTensor:
        """Return the entries of [B, A, ...] at `index` [B]."""
        rows = row_numbers(len(index))
        before = self.value
        if self.backward_of is None:
            return FastTensor(before[rows, index])

        def backward(gradient: Array, into: Gradients) -> tuple[Array]:
            below = np.zeros(before.shape, before.dtype)
            below[rows, index] = gradient
            return (below,)

        return FastTensor(before[rows, index], (self,), backward)

    def dot(self, other: Operand) -> FastTensor:
        """Compute the sum of products of two vectors [B]."""
        other = operand(other)
        one = self.value
        two = raw(other)
        return _binary(
            np.asarray(one.dot(two)), self, other, lambda g: g * two, lambda g: g * one, summed=True
        )


OVERRIDING.add(FastTensor)


def operand(other: object) -> Any:
    """Return an operand: a FastTensor or a number. A tensor with a gradient becomes a FastTensor with one."""
    kind = other.__class__
    if kind is FastTensor or kind is float or kind is int:
        return other
    if isinstance(other, Tensor):
        return from_tensor(other)
    if isinstance(other, np.ndarray | np.number | bool):
        return FastTensor(np.asarray(other))
    raise NoFastPath(f"an operand of type {type(other).__name__}")


def raw(other: object) -> Any:
    """Return the array of a FastTensor; a number stays one."""
    return other.value if other.__class__ is FastTensor else other


def array_of(constant: Operand) -> Array:
    """Return the array of a tensor or FastTensor that has no gradient of interest."""
    value: Array = raw(operand(constant))
    return value


def from_tensor(tensor: Tensor) -> FastTensor:
    """Return a tensor as FastTensor. Gradients reach a parameter, and the parameters that autograd knows of."""
    try:
        if not tensor.requires_grad:
            return FastTensor(tensor.numpy())
        if not torch.is_grad_enabled():
            return FastTensor(tensor.detach().numpy())
        value = tensor.detach().numpy()
    except (RuntimeError, TypeError) as error:  # another device, or a function transform of torch's
        raise NoFastPath("a tensor that NumPy cannot read") from error
    if not isinstance(tensor, nn.Parameter):
        raise NoFastPath("a tensor that autograd computed")
    parameter = tensor

    def backward(gradient: Array, into: Gradients) -> tuple[()]:
        into.add(parameter, reduced(gradient, value.shape))
        return ()

    return FastTensor(value, (), backward)


def _binary(
    value: Array,
    one: FastTensor,
    other: Any,
    to_one: Callable[[Array], Array],
    to_other: Callable[[Array], Array],
    summed: bool = False,
) -> FastTensor:
    """Return a function of two operands; gradients at broadcast operands are summed over what was broadcast."""
    tracked = torch.is_grad_enabled()
    first = tracked and one.backward_of is not None
    second = tracked and other.__class__ is FastTensor and other.backward_of is not None
    if not (first or second):
        return FastTensor(value)
    shape = value.shape
    if first and not summed and one.value.shape != shape:
        to_one = _reducing(to_one, one.value.shape)
    if second and not summed and other.value.shape != shape:
        to_other = _reducing(to_other, other.value.shape)
    if first and second:
        return FastTensor(value, (one, other), lambda g, into: (to_one(g), to_other(g)))
    if first:
        return FastTensor(value, (one,), lambda g, into: (to_one(g),))
    return FastTensor(value, (other,), lambda g, into: (to_other(g),))


def _same(gradient: Array) -> Array:
    return gradient


def _negative(gradient: Array) -> Array:
    return -gradient


def _reducing(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Callable[..., Array]:
    return lambda gradient: reduced(function(gradient), shape)


def reduced(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the axes along which an operand of this shape was broadcast."""
    ahead = gradient.ndim - len(shape)
    summed: Array = gradient.sum(tuple(range(ahead))) if ahead > 0 else gradient
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and summed.shape[axis] != 1)
    return summed.sum(axes, keepdims=True) if axes else summed


def name_of(function: Function) -> str:
    """Return a function's name as a reader knows it."""
    name = getattr(function, "__qualname__", getattr(function, "__name__", str(function)))
    return str(name).replace("_TensorBase", "Tensor")


def network_call(*_: object) -> NoReturn:
    """Stand for the call of a network in `FUNCTIONS`; `trace` replaces it."""
    raise NoFastPath("networks")


@lru_cache(maxsize=512)
def _method_of(function: Function) -> Function | None:
    """Return the method of FastTensor that does what a method of `torch.Tensor` or a function of torch's does."""
    name = getattr(function, "__name__", "")
    known = getattr(Tensor, name, None) is function or getattr(torch, name, None) is function
    if name in REFLECTED and known:
        return REFLECTED[name]
    method = vars(FastTensor).get(ALIASES.get(name, name)) if known else None
    return method if callable(method) else None


def _left(name: str) -> Callable[..., FastTensor]:
    """Return a binary method that takes a tensor on the left."""

    def call(one: Any, other: Operand) -> FastTensor:
        one = one if one.__class__ is FastTensor else operand(one)
        result: FastTensor = getattr(FastTensor, name)(one, other)
        return result

    return call


ALIASES = {"clip": "clamp", "absolute": "abs", "__abs__": "abs"}
#: Binary functions, with a tensor or a FastTensor on either side.
REFLECTED: dict[str, Function] = {
    **{
        name: _left(method)
        for method, names in {
            "__add__": ("add", "__add__", "__radd__"),
            "__sub__": ("sub", "__sub__", "subtract"),
            "__rsub__": ("rsub", "__rsub__"),
            "__mul__": ("mul", "__mul__", "__rmul__", "multiply"),
            "__truediv__": ("div", "true_divide", "__truediv__", "divide"),
            "__rtruediv__": ("__rtruediv__", "__rdiv__"),
            "minimum": ("minimum",),
            "maximum": ("maximum",),
            "dot": ("dot",),
            "__matmul__": ("matmul", "__matmul__"),
        }.items()
        for name in names
    },
}


def _smaller(one: Operand, other: object = None) -> FastTensor:
    """Do what `torch.min` does with two tensors."""
    if not isinstance(other, FastTensor | Tensor):
        raise NoFastPath("torch.min of one tensor")
    return _left("minimum")(one, operand(other))


def _larger(one: Operand, other: object = None) -> FastTensor:
    """Do what `torch.max` does with two tensors."""
    if not isinstance(other, FastTensor | Tensor):
        raise NoFastPath("torch.max of one tensor")
    return _left("maximum")(one, operand(other))


def concatenate(parts: Sequence[Operand], dim: int = 0) -> FastTensor:
    """Concatenate parts [B, F] along the last axis."""
    known: list[FastTensor] = [operand(part) for part in parts]
    if dim not in (-1, known[0].ndim - 1):
        raise NoFastPath("torch.cat along another axis than the last one")
    together = np.concatenate([part.value for part in known], -1)
    ends = list(accumulate(part.value.shape[-1] for part in known))
    tracked = [(end, part) for end, part in zip(ends, known, strict=True) if part.requires_grad]
    if not tracked:
        return FastTensor(together)

    def backward(gradient: Array, into: Gradients) -> list[Array]:
        return [gradient[(..., slice(end - part.value.shape[-1], end))] for end, part in tracked]

    return FastTensor(together, [part for _, part in tracked], backward)


def stack(parts: Sequence[FastTensor], dim: int = 0) -> FastTensor:
    """Put parts of one shape after each other, [n, ...]."""
    if dim != 0:
        raise NoFastPath("torch.stack along another axis than the first one")
    values = [operand(part).value for part in parts]
    together = np.empty((len(values), *values[0].shape), values[0].dtype)
    for number, value in enumerate(values):  # `np.stack` takes three times as long
        together[number] = value
    tracked = [number for number, part in enumerate(parts) if part.requires_grad]
    if not tracked:
        return FastTensor(together)
    return FastTensor(
        together,
        [parts[number] for number in tracked],
        lambda gradient, into: [gradient[number] for number in tracked],
    )


def pooled(parts: FastTensor) -> FastTensor:
    """Put n parts [n, B, F] side by side, [B, n * F]."""
    count, rows, each = parts.value.shape
    together = parts.value.transpose(1, 0, 2).reshape(rows, count * each)
    if parts.backward_of is None:
        return FastTensor(together)
    return FastTensor(
        together,
        (parts,),
        lambda gradient, into: (gradient.reshape(rows, count, each).transpose(1, 0, 2),),
    )


def huber(error: FastTensor) -> FastTensor:
    """Compute half of the square within 1, and the size less a half beyond."""
    value = error.value
    if (loops := head_loops()) is not None and value.ndim == 1 and value.dtype == np.float32:
        loss = np.empty_like(value)
        derivative = np.empty_like(value)
        loops.huber(value, loss, derivative)
        return error._unary(loss, derivative)
    derivative = np.minimum(np.maximum(value, -1), 1)
    return error._unary(derivative * (value - 0.5 * derivative), derivative)


def _smooth_l1(
    value: Operand, target: Operand, *, reduction: str = "mean", beta: float = 1.0, **old: None
) -> FastTensor:
    if reduction != "none" or beta != 1 or any(old.values()):
        raise NoFastPath(f"smooth_l1_loss with reduction='{reduction}' and beta={beta}")
    return huber(_left("__sub__")(value, target))


def _square_error(
    value: Operand, target: Operand, *, reduction: str = "mean", **old: None
) -> FastTensor:
    if reduction != "none" or any(old.values()):
        raise NoFastPath(f"mse_loss with reduction='{reduction}'")
    return _left("__sub__")(value, target).square()


#: What is not a method by torch's name. Other files of this room add the functions that are marked `overridable`.
FUNCTIONS: dict[Function, Function] = {
    torch.min: _smaller,
    torch.max: _larger,
    torch.cat: concatenate,
    torch.stack: stack,
    torch.pow: FastTensor.__pow__,
    nn.functional.smooth_l1_loss: _smooth_l1,
    nn.functional.mse_loss: _square_error,
}


def _log_softmax(logits: Array) -> tuple[Array, Array]:
    """Compute log-probabilities and probabilities of logits [R, n]."""
    if (loops := head_loops()) is not None and logits.dtype == np.float32:
        log_probs = np.empty_like(logits)
        probs = np.empty_like(logits)
        loops.log_softmax(logits, log_probs, probs)
        return log_probs, probs
    log_probs = logits - np.maximum.reduce(logits, 1, keepdims=True)
    probs = np.exp(log_probs)
    total = np.add.reduce(probs, 1, keepdims=True)
    log_probs -= np.log(total)
    probs /= total
    return log_probs, probs


@lru_cache(maxsize=16)
def ones(count: int, dtype: np.dtype[Any]) -> Array:
    """Return an array [count] of ones: its product with another array sums it.

    The same at every call, so it cannot be written to.
    """
    return _read_only(np.ones(count, dtype))


@lru_cache(maxsize=16)
def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros: with it `np.maximum` takes a third of the time that it takes with a number.

    The same at every call, so it cannot be written to.
    """
    return _read_only(np.zeros(shape, dtype))


@lru_cache(maxsize=16)
def row_numbers(count: int) -> Array:
    """Return the numbers [count] from 0; the same array at every call, so it cannot be written to."""
    return _read_only(np.arange(count))


def _expand(values: Array, axis: int) -> Array:
    """Return values with one more axis there, of length 1; `np.expand_dims` takes ten times as long."""
    shape = list(values.shape)
    shape.insert(axis if axis >= 0 else axis + values.ndim + 1, 1)
    return values.reshape(shape)


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _first(difference: Array) -> Array:
    """Return 1 if a difference is above 0, 0 if it is below, and a half if it is 0."""
    share: Array = np.sign(difference)
    share += 1
    share *= 0.5
    return share

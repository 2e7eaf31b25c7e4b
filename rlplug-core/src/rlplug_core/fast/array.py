"""`FastTensor`: a NumPy array with a gradient, on which losses are computed fast.

It has torch's functions and methods (`__torch_function__`), so a loss written for tensors runs on it unchanged. A
function that it does not have raises `NoFastPath` with the function's name, and autograd computes the loss instead.
Tests compare values and gradients with autograd.
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
    """Raised for a function that has no fast version; the message names it."""


class Gradients(dict[nn.Parameter, Array]):
    """The gradient of each parameter, as arrays to which backward passes add.

    Attributes:
        every: the `id`s of the parameters.
        zero: the `id`s of parameters with a gradient that is still zero; a backward pass may write it instead of adding
            to it, which is faster. Code that changes an array removes its parameter from this set.
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


#: Computes the gradients of a function's sources from the gradient of its result.
Backward: TypeAlias = Callable[[Array, Gradients], Sequence[Array | None]]

T = TypeVar("T")
#: An operand: a FastTensor, a tensor or a number.
Operand: TypeAlias = "FastTensor | Tensor | float"
#: The type, because `float` is a method here.
Number: TypeAlias = float
#: The size of the cache of `PerGradient`, which has an entry for each optimizer.
MOST = 8
_numbers = count()


class PerGradient(Generic[T]):
    """Caches a function of `Gradients`; an optimizer passes the same object at each update."""

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
    """An array [...]; the result of a differentiable function also has `backward_of` and its sources."""

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
        """Add the gradient of this scalar to the arrays of the parameters in `into`."""
        open_ = {self.number: (self, self.value.dtype.type(1))}
        while open_:
            # Results have larger numbers than their sources, so all gradients of a source are added before its turn.
            part, gradient = open_.pop(max(open_))
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
        """Compute a function of torch, or one that is marked `overridable`."""
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
        """Return the values in another shape."""
        if self.backward_of is None:
            return FastTensor(value)
        before = self.value.shape
        return FastTensor(value, (self,), lambda gradient, into: (gradient.reshape(before),))

    def __neg__(self) -> FastTensor:
        if self.backward_of is None:
            return FastTensor(-self.value)
        return FastTensor(-self.value, (self,), lambda gradient, into: (-gradient,))

    # Most operations have a constant operand: their gradient is prepared without `_binary`, in half of the time.

    def __add__(self, other: Operand) -> FastTensor:
        if other.__class__ is not FastTensor:
            other = operand(other)
        value = self.value + raw(other)
        if _is_constant(other):
            return self._linear(value, _pass)
        return _binary(value, self, other, _same, _same)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> FastTensor:
        if other.__class__ is not FastTensor:
            other = operand(other)
        value = self.value - raw(other)
        if _is_constant(other):
            return self._linear(value, _pass)
        return _binary(value, self, other, _same, _negative)

    def __rsub__(self, other: Operand) -> FastTensor:
        other = operand(other)
        return _binary(raw(other) - self.value, self, other, _negative, _same)

    def __mul__(self, other: Operand) -> FastTensor:
        if other.__class__ is float and other == 0:  # no infinite gradient becomes NaN
            return FastTensor(self.value * other)
        if other.__class__ is not FastTensor:
            other = operand(other)
        one = self.value
        two = raw(other)
        if _is_constant(other):
            return self._linear(one * two, lambda gradient, into: (gradient * two,))
        return _binary(one * two, self, other, lambda g: g * two, lambda g: g * one)

    __rmul__ = __mul__

    def _linear(
        self, value: Array, backward_of: Callable[[Array, Gradients], tuple[Array]]
    ) -> FastTensor:
        """Return a linear function of this array and a constant; `backward_of` is for operands of the same shape."""
        if self.backward_of is None or not torch.is_grad_enabled():
            return FastTensor(value)
        before = self.value.shape
        if value.shape == before:
            return FastTensor(value, (self,), backward_of)
        return FastTensor(
            value, (self,), lambda g, into: (reduced(backward_of(g, into)[0], before),)
        )

    def __truediv__(self, other: Operand) -> FastTensor:
        other = operand(other)
        two = raw(other)
        value = self.value / two
        if self.backward_of is None and _is_constant(other):
            return FastTensor(value)
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
        """Limit values to bounds; a value at a bound keeps its gradient."""
        for bound in (min, max):
            if bound is not None and not isinstance(bound, int | float):
                raise NoFastPath("a clamp with bounds that are not numbers")
        value = self.value if min is None else np.maximum(self.value, min)
        value = value if max is None else np.minimum(value, max)
        return self._unary(value, value == self.value)

    clip = clamp

    def minimum(self, other: Operand) -> FastTensor:
        """Compute the minimum; equal values get half of the gradient each."""
        other = operand(other)
        share = _first(raw(other) - self.value)
        value = np.minimum(self.value, raw(other))
        return _binary(value, self, other, lambda g: g * share, lambda g: g * (1 - share))

    def maximum(self, other: Operand) -> FastTensor:
        """Compute the maximum; equal values get half of the gradient each."""
        other = operand(other)
        share = _first(self.value - raw(other))
        value = np.maximum(self.value, raw(other))
        return _binary(value, self, other, lambda g: g * share, lambda g: g * (1 - share))

    def sum(self, dim: int | None = None) -> FastTensor:
        """Compute the sum along one axis, or of all values."""
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
        """Compute the mean along one axis, or of all values."""
        return self.sum(dim) / (self.value.size if dim is None else self.shape[dim])

    def amin(self, dim: int) -> FastTensor:
        """Compute the minimum along one axis; equal values share the gradient."""
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
        """Take one value of each row along the last axis of [..., n]."""
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
        if other.__class__ is not FastTensor:
            other = operand(other)
        one = self.value
        two = raw(other)
        value = np.asarray(one.dot(two))
        if self.backward_of is None and _is_constant(other):
            return FastTensor(value)
        return _binary(value, self, other, lambda g: g * two, lambda g: g * one, summed=True)


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


def _is_constant(other: object) -> bool:
    """Return whether an operand has no gradient."""
    return other.__class__ is not FastTensor or other.backward_of is None


def raw(other: object) -> Any:
    """Return the array of a FastTensor; a number is returned unchanged."""
    return other.value if other.__class__ is FastTensor else other


def array_of(constant: Operand) -> Array:
    """Return the array of a tensor or FastTensor, without its gradient."""
    value: Array = raw(operand(constant))
    return value


def from_tensor(tensor: Tensor) -> FastTensor:
    """Return a tensor as a FastTensor; a parameter keeps its gradient.

    Raises:
        NoFastPath: autograd computed the tensor, or NumPy cannot read it.
    """
    try:
        if not tensor.requires_grad:
            return FastTensor(tensor.numpy())
        if not torch.is_grad_enabled():
            return FastTensor(tensor.detach().numpy())
        value = tensor.detach().numpy()
    except (
        RuntimeError,
        TypeError,
    ) as error:  # on another device, or inside `torch.func` transforms
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
    """Return a function of two operands; gradients of broadcast operands are summed over the broadcast axes."""
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


def _pass(gradient: Array, into: Gradients) -> tuple[Array]:
    return (gradient,)


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
    """Return a function's name for messages."""
    name = getattr(function, "__qualname__", getattr(function, "__name__", str(function)))
    return str(name).replace("_TensorBase", "Tensor")


def network_call(*_: object) -> NoReturn:
    """Key of the entry in `FUNCTIONS` for calls of networks, which `trace` sets."""
    raise NoFastPath("networks")


@lru_cache(maxsize=512)
def _method_of(function: Function) -> Function | None:
    """Return the method of FastTensor for a method of `torch.Tensor` or a function of torch; None if it has none."""
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
    """Compute `torch.min` of two tensors."""
    if not isinstance(other, FastTensor | Tensor):
        raise NoFastPath("torch.min of one tensor")
    return _left("minimum")(one, operand(other))


def _larger(one: Operand, other: object = None) -> FastTensor:
    """Compute `torch.max` of two tensors."""
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
    """Stack n parts of one shape to [n, ...]."""
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
    """Concatenate n parts [n, B, F] along the features to [B, n * F]."""
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
    """Compute the Huber loss: half of the square within 1, and the absolute value minus a half beyond."""
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


#: Functions that are not methods with torch's name. Other files of `fast` add the functions marked `overridable`.
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
    """Return an array [count] of ones; the dot product with it computes a sum.

    Every call returns the same read-only array.
    """
    return _read_only(np.ones(count, dtype))


@lru_cache(maxsize=16)
def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros; `np.maximum` with it takes a third of the time that it takes with a number.

    Every call returns the same read-only array.
    """
    return _read_only(np.zeros(shape, dtype))


@lru_cache(maxsize=16)
def row_numbers(count: int) -> Array:
    """Return the numbers [count] from 0; every call returns the same read-only array."""
    return _read_only(np.arange(count))


def _expand(values: Array, axis: int) -> Array:
    """Return values with a new axis of length 1; `np.expand_dims` takes ten times as long."""
    shape = list(values.shape)
    shape.insert(axis if axis >= 0 else axis + values.ndim + 1, 1)
    return values.reshape(shape)


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _first(difference: Array) -> Array:
    """Return 1 for a positive difference, 0 for a negative one, and a half for 0."""
    share: Array = np.sign(difference)
    share += 1
    share *= 0.5
    return share

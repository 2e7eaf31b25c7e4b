"""Arrays that know their slopes: what a loss computes with where its networks go by rules.

A `Node` has those methods of a tensor that losses use, by torch's names, so that one `loss` serves both: on tensors
autograd differentiates it, on nodes the few lines below do, without a graph engine. Tests hold both ways equal. Other
operands are arrays and numbers, and no gradient reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, count
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.nets.loops import head_loops
from rlplug_core.types import Array


class Into(dict[nn.Parameter, Array]):
    """Arrays to which slopes are added, by parameter: views of an optimizer's flat gradient.

    Attributes:
        every: the parameters, by `id`.
        zero: those whose arrays are zero: the first one may write there, which takes less time than to add. Whoever
            adds to an array takes its parameter out.
    """

    def __init__(self, arrays: Mapping[nn.Parameter, Array]) -> None:
        super().__init__(arrays)
        self.every = frozenset(map(id, self))
        self.zero: set[int] = set()


#: Slopes at a node to the slopes at each of its sources.
Back: TypeAlias = Callable[[Array, Into], Sequence[Array | None]]

T = TypeVar("T")
#: Gradients about which something is remembered: there is one for each optimizer.
MOST = 8
_numbers = count()


class PerGradient(Generic[T]):
    """Finds something out about a gradient, and remembers it: an optimizer hands over the same one at each update."""

    def __init__(self, find: Callable[[Into], T]) -> None:
        self.find = find
        self.known: dict[int, tuple[Into, T]] = {}

    def __call__(self, into: Into) -> T:
        known = self.known.get(id(into))
        if known is None or known[0] is not into:
            if len(self.known) == MOST:
                self.known.clear()
            known = self.known[id(into)] = into, self.find(into)
        return known[1]


class Node:
    """An array [B, ...] made of others, its `sources`, and what takes slopes back to them."""

    __slots__ = ("back", "number", "sources", "value")
    __array_ufunc__ = None  # numpy leaves `array - node` to the node

    def __init__(self, value: Array, sources: Sequence[Node], back: Back) -> None:
        self.value = value
        self.sources = sources
        self.back = back
        self.number = next(_numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def detach(self) -> Array:
        """The values alone."""
        return self.value

    def item(self) -> float:
        return float(self.value)

    def backward(self, into: Into) -> None:
        """Add the slopes of this number, in the parameters that `into` has, to what stands there."""
        open_ = {self.number: (self, self.value.dtype.type(1))}
        while open_:
            node, slopes = open_.pop(max(open_))  # every node is younger than its sources
            for source, slope in zip(node.sources, node.back(slopes, into), strict=True):
                number = source.number
                known = open_.get(number)
                open_[number] = source, slope if known is None else known[1] + slope

    def _one(self, value: Array, slope: object) -> Node:
        """A function of this node alone, whose derivative is `slope`."""
        return Node(value, (self,), lambda slopes, into: (slopes * slope,))

    def __neg__(self) -> Node:
        return Node(-self.value, (self,), lambda slopes, into: (-slopes,))

    def __add__(self, other: Node | Array | float) -> Node:
        if isinstance(other, Node):
            return Node(
                _same(self.value + other.value, self, other),
                (self, other),
                lambda slopes, into: (slopes,) * 2,
            )
        return Node(
            _same(self.value + _known(other), self), (self,), lambda slopes, into: (slopes,)
        )

    def __sub__(self, other: Node | Array | float) -> Node:
        if isinstance(other, Node):
            difference = _same(self.value - other.value, self, other)
            return Node(difference, (self, other), lambda slopes, into: (slopes, -slopes))
        return Node(
            _same(self.value - _known(other), self), (self,), lambda slopes, into: (slopes,)
        )

    def __rsub__(self, other: Array | float) -> Node:
        return Node(
            _same(_known(other) - self.value, self), (self,), lambda slopes, into: (-slopes,)
        )

    def __mul__(self, other: Node | Array | float) -> Node:
        if isinstance(other, Node):
            one = self.value
            two = other.value
            product = _same(one * two, self, other)
            return Node(product, (self, other), lambda slopes, into: (slopes * two, slopes * one))
        factor = _known(other)
        product = _same(self.value * factor, self)
        return (
            Node(product, (), _nowhere)
            if factor.__class__ is float and factor == 0
            else self._one(product, factor)
        )

    def __truediv__(self, other: Array | float) -> Node:
        divisor = _known(other)
        return Node(
            _same(self.value / divisor, self), (self,), lambda slopes, into: (slopes / divisor,)
        )

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, exponent: float) -> Node:
        return self._one(self.value**exponent, exponent * self.value ** (exponent - 1))

    def __eq__(self, other: object) -> bool:
        raise TypeError("a node is not compared; compare its values, node.detach()")

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        named: Mapping[str, Any] = {},
    ) -> Any:
        """Do what torch's function does, by the method of the same name."""
        if function not in FUNCTIONS:
            raise TypeError(
                f"{function.__name__} has no rule by which a loss of arrays is differentiated; write it with functions "
                "that have one, or leave `in_numpy` out: autograd then differentiates a loss of tensors"
            )
        return FUNCTIONS[function](*args, **named)

    def exp(self) -> Node:
        value = np.exp(self.value)
        return self._one(value, value)

    def square(self) -> Node:
        return self._one(np.square(self.value), 2 * self.value)

    def abs(self) -> Node:
        return self._one(np.abs(self.value), np.sign(self.value))

    def clamp(self, low: float, high: float) -> Node:
        """Within bounds, which themselves count as inside."""
        value = np.minimum(np.maximum(self.value, low), high)
        return self._one(value, value == self.value)

    def clipped_product(self, factor: Array, low: float, high: float) -> Node:
        """The smaller of this times a factor [B], and of this within bounds times it; bounds count as inside."""
        if (loops := head_loops()) is not None and self.value.dtype == factor.dtype == np.float32:
            smaller = np.empty_like(factor)
            slope = np.empty_like(factor)
            loops.clipped_product(self.value, factor, low, high, smaller, slope)
            return self._one(smaller, slope)
        full = self.value * factor
        cut = np.minimum(np.maximum(self.value, low), high) * factor
        return self._one(np.minimum(full, cut), factor * (full <= cut))

    def minimum(self, other: Node) -> Node:
        """The smaller one; of equal ones each has half of the slope."""
        share = _first(other.value - self.value)
        smaller = np.minimum(self.value, other.value)
        return Node(
            smaller, (self, other), lambda slopes, into: (slopes * share, slopes * (1 - share))
        )

    def maximum(self, other: Node) -> Node:
        """The larger one; of equal ones each has half of the slope."""
        share = _first(self.value - other.value)
        larger = np.maximum(self.value, other.value)
        return Node(
            larger, (self, other), lambda slopes, into: (slopes * share, slopes * (1 - share))
        )

    def huber(self) -> Node:
        """Half of the square within 1, and the size less a half beyond."""
        if (
            (loops := head_loops()) is not None
            and self.value.ndim == 1
            and self.value.dtype == np.float32
        ):
            loss = np.empty_like(self.value)
            slope = np.empty_like(self.value)
            loops.huber(self.value, loss, slope)
            return self._one(loss, slope)
        slope = np.minimum(np.maximum(self.value, -1), 1)
        return self._one(slope * (self.value - 0.5 * slope), slope)

    def tanh(self) -> Node:
        value = np.tanh(self.value)
        return self._one(value, 1 - value * value)

    def sum(self, axis: int | None = None) -> Node:
        """The sums along one axis, or that of all."""
        if axis is None:
            return self.reshape(-1).sum(0)
        before = self.shape

        def back(slopes: Array, into: Into) -> tuple[Array]:
            found = np.empty(before, slopes.dtype)
            found[...] = _along(slopes, axis)
            return (found,)

        return Node(np.add.reduce(self.value, axis), (self,), back)

    def mean(self, axis: int | None = None) -> Node:
        """The means along one axis, or that of all."""
        return self.sum(axis) / (self.value.size if axis is None else self.shape[axis])

    def amin(self, axis: int) -> Node:
        """The smallest along one axis; equal ones share the slope."""
        smallest = np.minimum.reduce(self.value, axis)
        share = (self.value == _along(smallest, axis)).astype(self.value.dtype)
        share /= np.add.reduce(share, axis, keepdims=True)
        return Node(smallest, (self,), lambda slopes, into: (_along(slopes, axis) * share,))

    def squeeze(self, axis: int) -> Node:
        return self.reshape(*self.value.squeeze(axis).shape)

    def reshape(self, *shape: int) -> Node:
        before = self.shape
        return Node(
            self.value.reshape(shape), (self,), lambda slopes, into: (slopes.reshape(before),)
        )

    def chosen(self, index: Array) -> Node:
        """Return those of [B, A, ...] at `index` [B]."""
        rows = row_numbers(len(index))
        before = self.value

        def back(slopes: Array, into: Into) -> tuple[Array]:
            found = np.zeros(before.shape, before.dtype)
            found[rows, index] = slopes
            return (found,)

        return Node(before[rows, index], (self,), back)

    def dot(self, weights: Array) -> Node:
        """The sum of the values [B] times weights [B], a number."""
        return Node(
            np.asarray(self.value.dot(weights)), (self,), lambda slopes, into: (slopes * weights,)
        )


#: What a loss may call by torch's name, too.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.exp: Node.exp,
    torch.square: Node.square,
    torch.pow: Node.__pow__,
    torch.abs: Node.abs,
    torch.tanh: Node.tanh,
    torch.clamp: Node.clamp,
    torch.min: Node.minimum,
    torch.minimum: Node.minimum,
    torch.max: Node.maximum,
    torch.maximum: Node.maximum,
    torch.sum: Node.sum,
    torch.mean: Node.mean,
}


def beside(parts: Sequence[Node | Array]) -> Node | Array:
    """Put parts [B, F] side by side; an array where none of them is a node."""
    values = [part.value if isinstance(part, Node) else part for part in parts]
    nodes = [(number, part) for number, part in enumerate(parts) if isinstance(part, Node)]
    together = np.concatenate(values, 1)
    if not nodes:
        return together
    ends = list(accumulate(value.shape[1] for value in values))

    def back(slopes: Array, into: Into) -> list[Array]:
        return [slopes[:, ends[number] - part.shape[1] : ends[number]] for number, part in nodes]

    return Node(together, [part for _, part in nodes], back)


def stacked(parts: Sequence[Any]) -> Any:
    """Put parts of one shape one behind the other.

    Args:
        parts: n parts [...], all of them tensors, or nodes and arrays.

    Returns:
        [n, ...]: a tensor, a node, or an array where none of them is a node.
    """
    if isinstance(parts[0], Tensor):
        return torch.stack(list(parts))
    nodes = [part for part in parts if isinstance(part, Node)]
    values = [part.value if isinstance(part, Node) else part for part in parts]
    together = np.empty(
        (len(values), *values[0].shape), values[0].dtype
    )  # `np.stack` takes three times as long
    for number, value in enumerate(values):
        together[number] = value
    return Node(together, nodes, lambda slopes, into: list(slopes)) if nodes else together


def pooled(parts: Node | Array) -> Node | Array:
    """Put n parts [n, B, F] side by side, [B, n * F]; an array where they are no node."""
    value = parts.value if isinstance(parts, Node) else parts
    count, rows, each = value.shape
    together = value.transpose(1, 0, 2).reshape(rows, count * each)
    if not isinstance(parts, Node):
        return together
    return Node(
        together,
        (parts,),
        lambda slopes, into: (slopes.reshape(rows, count, each).transpose(1, 0, 2),),
    )


def exp(values: Any) -> Any:
    """Return e to the power of values [...], of a tensor, a node or an array, as which it is given."""
    return np.exp(values) if isinstance(values, np.ndarray) else values.exp()


def log_softmax(outputs: Any) -> Any:
    """Compute log-probabilities along the last axis.

    Args:
        outputs: [..., n], as a tensor, a node or an array.

    Returns:
        [..., n] in nats, of the same kind.
    """
    if isinstance(outputs, Tensor):
        return outputs.log_softmax(-1)
    value = outputs.value if isinstance(outputs, Node) else outputs
    log_probs, shares = _log_softmax(np.ascontiguousarray(value).reshape(-1, value.shape[-1]))
    found = log_probs.reshape(value.shape)
    if not isinstance(outputs, Node):
        return found
    share = shares.reshape(value.shape)
    return Node(
        found,
        (outputs,),
        lambda slopes, into: (slopes - share * np.add.reduce(slopes, -1, keepdims=True),),
    )


def _log_softmax(logits: Array) -> tuple[Array, Array]:
    """Log-probabilities and probabilities of logits [R, n]."""
    if (loops := head_loops()) is not None and logits.dtype == np.float32:
        log_probs = np.empty_like(logits)
        shares = np.empty_like(logits)
        loops.log_softmax(logits, log_probs, shares)
        return log_probs, shares
    log_probs = logits - np.maximum.reduce(logits, 1, keepdims=True)
    shares = np.exp(log_probs)
    total = np.add.reduce(shares, 1, keepdims=True)
    log_probs -= np.log(total)
    shares /= total
    return log_probs, shares


@lru_cache(maxsize=16)
def ones(count: int, dtype: np.dtype[Any]) -> Array:
    """Return an array [count] of ones, whose product with another sums it.

    The same at every call, so it cannot be written to.
    """
    return _kept(np.ones(count, dtype))


@lru_cache(maxsize=16)
def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of zeros: beside it `np.maximum` takes a third of the time that it takes beside a number.

    The same at every call, so it cannot be written to.
    """
    return _kept(np.zeros(shape, dtype))


@lru_cache(maxsize=16)
def row_numbers(count: int) -> Array:
    """Return the numbers [count] from 0 on; the same array at every call, so it cannot be written to."""
    return _kept(np.arange(count))


def _along(values: Array, axis: int) -> Array:
    """Return values with one more axis there, of length 1; `np.expand_dims` takes ten times as long."""
    shape = list(values.shape)
    shape.insert(axis if axis >= 0 else axis + values.ndim + 1, 1)
    return values.reshape(shape)


def _kept(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _nowhere(slopes: Array, into: Into) -> tuple[()]:
    """Take slopes to no source: the back of what is 0 whatever its sources are."""
    return ()


def _first(difference: Array) -> Array:
    """1 where a difference is above 0, 0 where it is below, and a half where there is none."""
    share: Array = np.sign(difference)
    share += 1
    share *= 0.5
    return share


def _known(other: object) -> object:
    """An operand through which no gradient goes; a tensor as an array, which is refused if it wants one."""
    return other.numpy() if isinstance(other, Tensor) else other


def _same(value: Array, *sources: Node) -> Array:
    """`value`, which has the shape of its sources: slopes are not summed over what was broadcast."""
    shape = value.shape
    for source in sources:
        if source.value.shape != shape:
            raise TypeError(f"a node of shape {source.shape} would become {shape}")
    return value

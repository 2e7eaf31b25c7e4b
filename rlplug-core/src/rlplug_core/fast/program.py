"""A chain of layer operations: forward to a network's outputs, backward to the gradients of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.fast.layer_ops import ElementwiseOp, LinearOp, Op, ParamGrads
from rlplug_core.types import Array

#: One step of `backward`: the operation's number, the operation, whether the gradient at its inputs is wanted, and the
#: arrays that the gradients of its parameters are added to, None if they are not wanted. The same arrays come twice:
#: marked as filled, and marked as fresh, which means zero.
Step: TypeAlias = tuple[int, Op, bool, tuple[ParamGrads | None, ParamGrads | None]]


class Chain:
    """Operations one after the other; a chain is an operation, too.

    Args:
        ops: first to last; a parameter may occur in several of them.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = fuse(ops)
        self.parameters: list[nn.Parameter] = [each for op in self.ops for each in op.parameters]

    def refresh_views(self) -> None:
        for op in self.ops:
            op.refresh_views()

    def forward(self, values: Array) -> tuple[Array, list[object]]:
        """Compute the outputs, and the values of this pass that `backward` needs."""
        saved = []
        for op in self.ops:
            values, saved_by_op = op.forward(values)
            saved.append(saved_by_op)
        return values, saved

    def backward(
        self,
        gradient: Array,
        saved: list[Any],
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        arrays = [None] * len(self.parameters) if param_grads is None else param_grads.arrays
        fresh = param_grads is not None and param_grads.fresh
        return self.propagate(
            self.steps(needs_input_grad, arrays), gradient, saved, needs_input_grad, fresh
        )

    def steps(
        self,
        needs_input_grad: bool,
        arrays: Sequence[Array | None],
    ) -> list[Step]:
        """Return the steps of `backward`, last operation to first, without operations before the first wanted gradient.

        Args:
            needs_input_grad: whether the gradient at the inputs is wanted.
            arrays: for each parameter the array that its gradient is added to, None if it is not wanted.
        """
        steps: list[Step] = []
        start = 0
        wanted = needs_input_grad
        for number, op in enumerate(self.ops):
            end = start + len(op.parameters)
            param_grads = _param_grads(op, arrays[start:end])
            if wanted or param_grads[0] is not None:
                steps.append((number, op, wanted, param_grads))
            start = end
            wanted = wanted or param_grads[0] is not None
        return steps[::-1]

    def propagate(
        self,
        steps: list[Step],
        gradient: Array,
        saved: list[object],
        needs_input_grad: bool,
        fresh: bool,
    ) -> Array | None:
        """Propagate a gradient at the outputs back through `steps`.

        Args:
            steps: a result of the method `steps`.
            gradient: the gradient at the outputs.
            saved: the values that `forward` saved.
            needs_input_grad: whether the gradient at the inputs is wanted.
            fresh: whether the arrays of the parameters are zero.
        """
        below: Array | None = gradient
        for number, op, wanted, param_grads in steps:
            assert below is not None
            below = op.backward(below, saved[number], wanted, param_grads[fresh])
        return below if needs_input_grad else None


def _param_grads(
    op: Op,
    arrays: Sequence[Array | None],
) -> tuple[ParamGrads | None, ParamGrads | None]:
    """Return the arrays of an operation as filled and as fresh; nothing reads those for unwanted gradients."""
    if all(array is None for array in arrays):
        return None, None
    pairs = zip(arrays, op.parameters, strict=True)
    (dtype, *_) = (array.dtype for array in arrays if array is not None)
    all_arrays = [
        np.zeros(parameter.shape, dtype) if array is None else array for array, parameter in pairs
    ]
    return ParamGrads(all_arrays, fresh=False), ParamGrads(all_arrays, fresh=True)


def fuse(ops: Sequence[Op]) -> list[Op]:
    """Return the operations, with each linear layer and the elementwise function after it joined into one."""
    result: list[Op] = []
    for op in ops:
        last = result[-1] if result else None
        if isinstance(op, ElementwiseOp) and isinstance(last, LinearOp) and last.then is None:
            result[-1] = LinearOp(*last.parameters, then=op)
        else:
            result.append(op)
    return result


class DuelingOp:
    """Two streams, of a value and of advantages, to V + A - mean A (Wang et al., 2016, arXiv:1511.06581, eq. 9).

    Args:
        advantage: features to [B, actions * atoms].
        value: features to [B, atoms].
    """

    def __init__(self, advantage: Chain, value: Chain, actions: int) -> None:
        self.advantage = advantage
        self.value = value
        self.actions = actions
        self.parameters = [*advantage.parameters, *value.parameters]

    def refresh_views(self) -> None:
        self.advantage.refresh_views()
        self.value.refresh_views()

    def forward(
        self,
        values: Array,
    ) -> tuple[Array, tuple[list[object], list[object]]]:
        advantage, saved_by_advantage = self.advantage.forward(values)
        value, saved_by_value = self.value.forward(values)
        per_action = advantage.reshape(len(values), self.actions, -1)
        outputs = value[:, None] + (per_action - per_action.mean(1, keepdims=True))
        return outputs.reshape(advantage.shape), (saved_by_advantage, saved_by_value)

    def backward(
        self,
        gradient: Array,
        saved: tuple[list[Any], list[Any]],
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        per_action = gradient.reshape(len(gradient), self.actions, -1)
        centered = (per_action - per_action.mean(1, keepdims=True)).reshape(gradient.shape)
        advantage_grads, value_grads = _split(param_grads, [self.advantage, self.value])
        gradients = (
            self.advantage.backward(centered, saved[0], needs_input_grad, advantage_grads),
            self.value.backward(per_action.sum(1), saved[1], needs_input_grad, value_grads),
        )
        if not needs_input_grad:
            return None
        total: Array = np.sum([each for each in gradients if each is not None], 0)
        return total


class ConcatOp:
    """Concatenates the outputs of chains on the same features: [B, F] to [B, sum of outputs]; for acting only."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        self.chains = chains
        self.parameters = [parameter for chain in chains for parameter in chain.parameters]

    def refresh_views(self) -> None:
        for chain in self.chains:
            chain.refresh_views()

    def forward(self, values: Array) -> tuple[Array, None]:
        return np.concatenate([chain.forward(values)[0] for chain in self.chains], -1), None

    def backward(
        self,
        gradient: Array,
        saved: None,
        needs_input_grad: bool,
        param_grads: ParamGrads | None,
    ) -> None:
        raise NotImplementedError("a loss replays no network with a ConcatOp")


def _split(
    param_grads: ParamGrads | None,
    chains: Sequence[Chain],
) -> list[ParamGrads | None]:
    """Split the arrays of successive chains into those of each chain."""
    if param_grads is None:
        return [None] * len(chains)
    ends = list(accumulate(len(chain.parameters) for chain in chains))
    return [
        ParamGrads(param_grads.arrays[start:end], param_grads.fresh)
        for start, end in pairwise([0, *ends])
    ]

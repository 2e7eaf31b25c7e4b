"""A chain of layer operations: forward to a network's outputs, backward to the gradients of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from torch import nn

from rlplug_core.fast.layer_ops import ElementwiseOp, LinearOp, Op, ParamGrads
from rlplug_core.types import Array

#: An operation on the way back: its number, itself, whether the gradient is wanted at its inputs, and, if it is wanted
#: at its parameters, the arrays that it is added to: once as arrays that hold something, and once as zeros.
Step: TypeAlias = tuple[int, Op, bool, tuple[ParamGrads | None, ParamGrads | None]]


class Chain:
    """Operations one after the other, itself an operation.

    Args:
        ops: first to last; a parameter may occur in several of them.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        self.ops = fuse(ops)
        self.parameters: list[nn.Parameter] = [one for op in self.ops for one in op.parameters]

    def refresh_views(self) -> None:
        """Take views of the parameters at their current place in memory."""
        for op in self.ops:
            op.refresh_views()

    def forward(self, values: Array) -> tuple[Array, list[object]]:
        """Compute the outputs, and the values of this pass that `backward` needs."""
        saved = []
        for op in self.ops:
            values, kept = op.forward(values)
            saved.append(kept)
        return values, saved

    def backward(
        self,
        gradient: Array,
        saved: list[Any],
        inputs: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        arrays = [None] * len(self.parameters) if param_grads is None else param_grads.arrays
        fresh = param_grads is not None and param_grads.fresh
        return self.along(self.steps(inputs, arrays), gradient, saved, inputs, fresh)

    def steps(
        self,
        inputs: bool,
        arrays: Sequence[Array | None],
    ) -> list[Step]:
        """Return the operations with something to compute, last to first; nothing is computed below them.

        Args:
            inputs: whether the gradient is wanted at the inputs.
            arrays: for each parameter the array that its gradient is added to, None if it is not wanted.
        """
        steps: list[Step] = []
        start = 0
        below = inputs
        for number, op in enumerate(self.ops):
            end = start + len(op.parameters)
            param_grads = _param_grads(op, arrays[start:end])
            if below or param_grads[0] is not None:
                steps.append((number, op, below, param_grads))
            start = end
            below = below or param_grads[0] is not None
        return steps[::-1]

    def along(
        self,
        steps: list[Step],
        gradient: Array,
        saved: list[object],
        inputs: bool,
        fresh: bool,
    ) -> Array | None:
        """Take a gradient back by known steps; `fresh` says whether all arrays are zero."""
        passed: Array | None = gradient
        for number, op, below, param_grads in steps:
            assert passed is not None
            passed = op.backward(passed, saved[number], below, param_grads[fresh])
        return passed if inputs else None


def _param_grads(
    op: Op,
    arrays: Sequence[Array | None],
) -> tuple[ParamGrads | None, ParamGrads | None]:
    """Return the arrays of an operation, not fresh and fresh; unwanted gradients go into separate arrays."""
    if all(one is None for one in arrays):
        return None, None
    known = zip(arrays, op.parameters, strict=True)
    (kind, *_) = (one.dtype for one in arrays if one is not None)
    filled = [np.zeros(parameter.shape, kind) if one is None else one for one, parameter in known]
    return ParamGrads(filled, fresh=False), ParamGrads(filled, fresh=True)


def fuse(ops: Sequence[Op]) -> list[Op]:
    """Return the same operations, a linear layer and the function after it as one."""
    result: list[Op] = []
    for op in ops:
        last = result[-1] if result else None
        if isinstance(op, ElementwiseOp) and isinstance(last, LinearOp) and last.then is None:
            result[-1] = LinearOp(*last.parameters, then=op)
        else:
            result.append(op)
    return result


class DuelingOp:
    """Streams of a value and of advantages to V + A - mean A (Wang et al., 2016, arXiv:1511.06581, eq. 9).

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
        """Take views of the parameters at their current place in memory."""
        self.advantage.refresh_views()
        self.value.refresh_views()

    def forward(
        self,
        values: Array,
    ) -> tuple[Array, tuple[list[object], list[object]]]:
        advantage, on_advantage = self.advantage.forward(values)
        value, on_value = self.value.forward(values)
        apart = advantage.reshape(len(values), self.actions, -1)
        outputs = value[:, None] + (apart - apart.mean(1, keepdims=True))
        return outputs.reshape(advantage.shape), (on_advantage, on_value)

    def backward(
        self,
        gradient: Array,
        saved: tuple[list[Any], list[Any]],
        inputs: bool,
        param_grads: ParamGrads | None,
    ) -> Array | None:
        apart = gradient.reshape(len(gradient), self.actions, -1)
        centered = (apart - apart.mean(1, keepdims=True)).reshape(gradient.shape)
        of_advantage, of_value = _split(param_grads, [self.advantage, self.value])
        by_advantage = self.advantage.backward(centered, saved[0], inputs, of_advantage)
        by_value = self.value.backward(apart.sum(1), saved[1], inputs, of_value)
        if not inputs:
            return None
        total: Array = np.sum([part for part in (by_advantage, by_value) if part is not None], 0)
        return total


class ConcatOp:
    """Chains on the same features, their outputs next to each other: [B, F] to [B, sum of outputs]; for acting only."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        self.chains = chains
        self.parameters = [parameter for chain in chains for parameter in chain.parameters]

    def refresh_views(self) -> None:
        """Take views of the parameters at their current place in memory."""
        for chain in self.chains:
            chain.refresh_views()

    def forward(self, values: Array) -> tuple[Array, None]:
        return np.concatenate([chain.forward(values)[0] for chain in self.chains], -1), None

    def backward(
        self,
        gradient: Array,
        saved: None,
        inputs: bool,
        param_grads: ParamGrads | None,
    ) -> None:
        raise NotImplementedError("losses do not replay several layers next to each other")


def _split(
    param_grads: ParamGrads | None,
    chains: Sequence[Chain],
) -> list[ParamGrads | None]:
    """Split arrays among chains with parameters that follow one another."""
    if param_grads is None:
        return [None] * len(chains)
    ends = list(accumulate(len(chain.parameters) for chain in chains))
    return [
        ParamGrads(param_grads.arrays[start:end], param_grads.fresh)
        for start, end in pairwise([0, *ends])
    ]

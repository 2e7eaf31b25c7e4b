"""A recurrent cell unrolled along a sequence as one operation of autograd, by numba's loops.

If cells are small, torch's calls take longer than the arithmetic. Here one product computes the inputs of all steps,
and one the gradient of each weight; in between, a step is one product and one loop. Without numba torch computes each
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import has_torch_function

from rlplug_core.fast.numba_loops import loop_module
from rlplug_core.nets.recurrent import step_by_step
from rlplug_core.types import Array


@dataclass(frozen=True)
class CellLoops:
    """The loops and sizes of a kind of cell, and its step in torch.

    Attributes:
        name: the prefix of the names of its loops in `loops.memory`.
        gates: the number of gates of a unit.
        saved: how many numbers the backward pass needs for a unit.
        two_gradients: whether the gradients at the two products differ.
        step: torch's own step.
    """

    name: str
    gates: int
    saved: int
    two_gradients: bool
    step: Callable[..., Sequence[Tensor]]


def _gru_step(
    features: Tensor,
    before: Sequence[Tensor],
    *weights: Tensor,
) -> list[Tensor]:
    return [torch.gru_cell(features, before[0], *weights)]


KINDS: dict[type[nn.RNNCellBase], CellLoops] = {
    nn.GRUCell: CellLoops("gru", gates=3, saved=4, two_gradients=True, step=_gru_step),
    nn.LSTMCell: CellLoops("lstm", gates=4, saved=5, two_gradients=False, step=torch.lstm_cell),
}


def fits(cell: nn.RNNCellBase, features: Tensor) -> bool:
    """Return whether loops can unroll a cell on features [T * N, F]; not if torch traces or watches operations."""
    return (
        type(cell) in KINDS
        and type(features) is Tensor
        and loop_module("memory") is not None
        and not has_torch_function((features,))
        and features.is_cpu
        and features.dtype is cell.weight_hh.dtype is torch.float32
        and not (cell._forward_hooks or cell._forward_pre_hooks or cell._backward_hooks)
        and not torch.compiler.is_compiling()
        and not torch._C._is_tracing()  # a trace would record the results as constants
    )


def unroll_cell(
    cell: nn.RNNCellBase,
    features: Tensor,
    is_first: Tensor,
    before: Sequence[Tensor],
    valid: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return each part of the state after each step, [T * N, H]; arguments as of `Memory.unroll`."""
    tensors = features, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, *before
    return UnrolledCell.apply(KINDS[type(cell)], is_first, valid, *tensors)  # type: ignore[no-untyped-call]


class UnrolledCell(torch.autograd.Function):
    """A cell unrolled along a sequence, and backpropagation through time; torch's cell computes second derivatives."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: CellLoops,
        is_first: Tensor,
        valid: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.kind = kind
        ctx.masks = is_first, valid
        ctx.save_for_backward(*tensors)
        arrays = [tensor.detach().numpy() for tensor in tensors]
        features, weight_ih, weight_hh, bias_ih, bias_hh, *before = arrays
        inputs = features @ weight_ih.T
        inputs += bias_ih
        ctx.steps = Steps(kind, is_first.numpy(), valid, len(before[0]), weight_hh)
        outputs = ctx.steps.forward(inputs, bias_hh, before)
        return tuple(torch.from_numpy(part.reshape(len(inputs), -1)) for part in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return None, None, None, *_differentiate_again(ctx, gradients)
        features, weight_ih, *_ = ctx.saved_tensors
        steps: Steps = ctx.steps
        grad_input, grad_hidden, grad_before = steps.backward(
            [g.contiguous().numpy() for g in gradients]
        )
        states = steps.states[0].reshape(len(grad_input), -1)
        arrays = [
            grad_input @ weight_ih.detach().numpy() if ctx.needs_input_grad[3] else None,
            grad_input.T @ features.detach().numpy(),
            grad_hidden.T @ states,
            grad_input.sum(0),
            grad_hidden.sum(0),
            *grad_before,
        ]
        return None, None, None, *(None if a is None else torch.from_numpy(a) for a in arrays)


def _differentiate_again(
    ctx: Any,
    gradients: tuple[Tensor, ...],
) -> Sequence[Tensor | None]:
    """Return gradients that can be differentiated again."""
    features, *others = ctx.saved_tensors
    weights = others[:4]
    before = others[4:]

    def step(features: Tensor, states: Sequence[Tensor]) -> Sequence[Tensor]:
        return ctx.kind.step(features, states, *weights)

    outputs = step_by_step(step, features, ctx.masks[0], before, ctx.masks[1])
    needed = ctx.needs_input_grad[3:]
    inputs = [tensor for tensor, need in zip(ctx.saved_tensors, needed, strict=True) if need]
    results = iter(
        torch.autograd.grad(outputs, inputs, gradients, create_graph=True, allow_unused=True)
    )
    return [next(results) if need else None for need in needed]


class Steps:
    """T steps of N rows, with the numbers that the backward pass needs.

    Args:
        kind: the kind of cell.
        is_first, valid: [T * N], as of `Memory.unroll`.
        rows: N.
        weight: [gates * H, H], that of the state.
    """

    def __init__(
        self,
        kind: CellLoops,
        is_first: Array,
        valid: Tensor | None,
        rows: int,
        weight: Array,
    ) -> None:
        self.kind = kind
        self.weight = weight
        self.not_first = (~is_first).astype(weight.dtype).reshape(-1, rows, 1)
        steps = len(self.not_first)
        all_valid = np.ones((steps, rows), np.bool_)
        self.valid = all_valid if valid is None else valid.numpy().reshape(steps, rows)
        self.saved = np.empty((steps, rows, kind.saved * weight.shape[1]), weight.dtype)
        #: Each part of the state before each step [T, N, H]; it is zero at the start of an episode.
        self.states: list[Array] = []
        loops = loop_module("memory")
        self.forward_step = getattr(loops, f"{kind.name}_forward")
        self.backward_step = getattr(loops, f"{kind.name}_backward")

    def forward(
        self,
        inputs: Array,
        bias: Array,
        before: list[Array],
    ) -> list[Array]:
        """Return each part [T, N, H] of the state.

        Args:
            inputs: [T * N, gates * H], products of features and weights.
            bias: [gates * H], that of the state.
            before: each part [N, H] before the first step.
        """
        steps = len(self.not_first)
        rows, units = before[0].shape
        inputs = inputs.reshape(steps, rows, -1)
        transposed = self.weight.T
        hidden = np.empty(inputs.shape[1:], inputs.dtype)
        outputs = [np.empty((steps, rows, units), inputs.dtype) for _ in before]
        self.states = [np.empty_like(part) for part in outputs]
        for t in range(steps):
            states = [part[t] for part in self.states]
            for part, old in zip(states, before, strict=True):
                np.multiply(old, self.not_first[t], out=part)
            np.dot(states[0], transposed, out=hidden)
            before = [part[t] for part in outputs]
            self.forward_step(
                inputs[t], hidden, bias, *states, self.valid[t], self.saved[t], *before
            )
        return outputs

    def backward(
        self,
        gradients: list[Array],
    ) -> tuple[Array, Array, list[Array]]:
        """Return gradients at both products, [T * N, gates * H] each, and at each part before the first step."""
        steps, rows, units = self.states[0].shape
        grad_states = [gradient.reshape(steps, rows, units) for gradient in gradients]
        grad_input = np.empty((steps, rows, self.kind.gates * units), self.weight.dtype)
        grad_hidden = np.empty_like(grad_input) if self.kind.two_gradients else grad_input
        carries = [np.zeros_like(part[0]) for part in grad_states]
        product = np.empty_like(grad_states[0][0])
        for t in reversed(range(steps)):
            states = [part[t] for part in self.states]
            above = [part[t] for part in grad_states]
            below = [grad_input[t], grad_hidden[t]] if self.kind.two_gradients else [grad_input[t]]
            self.backward_step(self.saved[t], self.valid[t], *states, *above, *carries, *below)
            np.dot(grad_hidden[t], self.weight, out=product)
            carries[0] += product
            for carry in carries:
                carry *= self.not_first[t]
        flat = steps * rows
        return grad_input.reshape(flat, -1), grad_hidden.reshape(flat, -1), carries

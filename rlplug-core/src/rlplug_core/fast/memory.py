"""A memory along a whole sequence as one operation of autograd's, in numpy: where cells are small, torch's calls take
longer than the arithmetic.

What all steps see is one product, and so are the slopes of weights; between them each step is a product and a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import has_torch_function

from rlplug_core.fast import memory_steps
from rlplug_core.fast.numba_loops import memory_loops
from rlplug_core.nets.recurrent import step_by_step
from rlplug_core.types import Array

#: What is seen [N, F] and each part of what was kept [N, H] to each part of what is remembered.
Step: TypeAlias = Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Form:
    """A cell as `memory_steps` has it: its word there, how many gates and numbers for the way back a unit has.

    With `parted` the slopes at both products differ. `step` is torch's own.
    """

    word: str
    gates: int
    told: int
    parted: bool
    step: Callable[..., Sequence[Tensor]]


FORMS: dict[type[nn.RNNCellBase], Form] = {
    nn.GRUCell: Form(
        "gru",
        3,
        4,
        parted=True,
        step=lambda seen, kept, *weights: [torch.gru_cell(seen, kept[0], *weights)],
    ),
    nn.LSTMCell: Form("lstm", 4, 5, parted=False, step=torch.lstm_cell),
}


def fits(cell: nn.RNNCellBase, features: Tensor) -> bool:
    """Return whether this cell can go along features [T * N, F] so: not where it is traced, watched, or on a GPU."""
    return (
        type(cell) in FORMS
        and type(features) is Tensor
        and not has_torch_function((features,))
        and features.is_cpu
        and features.dtype == cell.weight_hh.dtype
        and features.dtype in (torch.float32, torch.float64)
        and not (cell._forward_hooks or cell._forward_pre_hooks or cell._backward_hooks)
        and not torch.compiler.is_compiling()
        and not torch._C._is_tracing()  # a trace would keep the numbers
    )


def along(
    cell: nn.RNNCellBase,
    features: Tensor,
    is_first: Tensor,
    before: Sequence[Tensor],
    valid: Tensor | None,
) -> tuple[Tensor, ...]:
    """Return each part of what is remembered after each step, [T * N, H]; arguments as of `Memory.unroll`."""
    tensors = features, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, *before
    found: tuple[Tensor, ...] = Along.apply(FORMS[type(cell)], is_first, valid, *tensors)  # type: ignore[no-untyped-call]
    return found


class Along(torch.autograd.Function):
    """The unrolled cell, and its way back through time; who differentiates twice gets autograd's own."""

    @staticmethod
    def forward(
        ctx: Any, form: Form, is_first: Tensor, valid: Tensor | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.form, ctx.masks = form, (is_first, valid)
        ctx.save_for_backward(*tensors)
        features, weight_ih, weight_hh, bias_ih, bias_hh, *before = (
            one.detach().numpy() for one in tensors
        )
        seen = features @ weight_ih.T
        seen += bias_ih
        steps = ctx.steps = Steps(form, is_first.numpy(), valid, len(before[0]), weight_hh)
        outputs = steps.up(seen, bias_hh, before)
        return tuple(torch.from_numpy(part.reshape(len(seen), -1)) for part in outputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return None, None, None, *_twice(ctx, slopes)
        features, weight_ih, *_ = ctx.saved_tensors
        to_x, to_hidden, carries = ctx.steps.down([slope.contiguous().numpy() for slope in slopes])
        kept = ctx.steps.kept[0].reshape(len(to_x), -1)
        found = [to_x @ weight_ih.detach().numpy() if ctx.needs_input_grad[3] else None]
        found += [
            to_x.T @ features.detach().numpy(),
            to_hidden.T @ kept,
            to_x.sum(0),
            to_hidden.sum(0),
            *carries,
        ]
        return None, None, None, *(one if one is None else torch.from_numpy(one) for one in found)


def _twice(ctx: Any, slopes: tuple[Tensor, ...]) -> Sequence[Tensor | None]:
    """The slopes with a graph of their own, for those that are differentiated again."""
    features, *others = ctx.saved_tensors
    weights = others[:4]
    before = others[4:]

    def step(seen: Tensor, kept: Sequence[Tensor]) -> Sequence[Tensor]:
        return ctx.form.step(seen, kept, *weights)  # type: ignore[no-any-return]

    outputs = step_by_step(step, features, ctx.masks[0], before, ctx.masks[1])
    wanted = [
        one
        for one, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[3:], strict=True)
        if needed
    ]
    found = iter(torch.autograd.grad(outputs, wanted, slopes, create_graph=True, allow_unused=True))
    return [next(found) if needed else None for needed in ctx.needs_input_grad[3:]]


class Steps:
    """The steps of N rows, T of each, and what they leave for the way back.

    Args:
        is_first, valid: [T * N], as of `Memory.unroll`.
        weight: [gates * H, H], of what was remembered.
    """

    def __init__(
        self, form: Form, is_first: Array, valid: Tensor | None, rows: int, weight: Array
    ) -> None:
        self.form, self.weight, units = form, weight, weight.shape[1]
        self.keep = (~is_first).astype(weight.dtype).reshape(-1, rows, 1)
        steps = len(self.keep)
        self.counts = (
            np.ones((steps, rows), np.bool_)
            if valid is None
            else valid.numpy().reshape(steps, rows)
        )
        self.told = np.empty((steps, rows, form.told * units), weight.dtype)
        self.kept: list[Array] = []
        compiled = memory_loops() if weight.dtype == np.float32 else None
        self.up_once = getattr(compiled or memory_steps, f"{form.word}_up")
        self.down_once = getattr(compiled or memory_steps, f"{form.word}_down")

    def up(self, seen: Array, bias: Array, before: list[Array]) -> list[Array]:
        """Each part [T, N, H] of what is remembered, from products [T * N, gates * H] and what was before, [N, H]."""
        steps, rows, units = len(self.keep), *before[0].shape
        seen = seen.reshape(steps, rows, -1)
        turned = self.weight.T
        hidden = np.empty(seen.shape[1:], seen.dtype)
        outputs = [np.empty((steps, rows, units), seen.dtype) for _ in before]
        self.kept = [np.empty_like(part) for part in outputs]
        for t in range(steps):
            kept = [part[t] for part in self.kept]
            for part, old in zip(kept, before, strict=True):
                np.multiply(old, self.keep[t], out=part)
            np.dot(kept[0], turned, out=hidden)
            before = [part[t] for part in outputs]
            self.up_once(seen[t], hidden, bias, *kept, self.counts[t], self.told[t], *before)
        return outputs

    def down(self, slopes: list[Array]) -> tuple[Array, Array, list[Array]]:
        """Slopes at both products, [T * N, gates * H] each, and at what was before the first step."""
        steps, rows, units = self.kept[0].shape
        apart = [part.reshape(steps, rows, units) for part in slopes]
        to_x = np.empty((steps, rows, self.form.gates * units), self.weight.dtype)
        to_hidden = np.empty_like(to_x) if self.form.parted else to_x
        carries = [np.zeros_like(part[0]) for part in apart]
        through = np.empty_like(apart[0][0])
        for t in reversed(range(steps)):
            kept = [part[t] for part in self.kept]
            given = [part[t] for part in apart]
            own = (to_x[t], to_hidden[t]) if self.form.parted else (to_x[t],)
            self.down_once(self.told[t], self.counts[t], *kept, *given, *carries, *own)
            np.dot(to_hidden[t], self.weight, out=through)
            carries[0] += through
            for carry in carries:
                carry *= self.keep[t]
        flat = steps * rows
        return to_x.reshape(flat, -1), to_hidden.reshape(flat, -1), carries

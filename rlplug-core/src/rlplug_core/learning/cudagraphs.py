"""CUDA graphs of gradient steps: one for a loss, and one for its gradient, the clip and the optimizer's step.

A graph runs its kernels on the memory that they had when they were recorded. So what a loss is given is copied to where
its graph reads it, and what it returns leaves as a copy. Parameters, gradients and the optimizer's state stay where
they are, and buffers of networks must.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from rlplug_core.config.options import Config, watched
from rlplug_core.errors import PluginError
from rlplug_core.learning.trees import Packed, by_type, described, mapped
from rlplug_core.nets.recorded import WARM, Beside, Recorded

#: Computes a loss: it returns the loss alone, or a tuple that begins with it.
Compute: TypeAlias = Callable[..., Any]
#: For how many kinds of arguments steps are recorded, and for how many values of the options that a loss reads.
KINDS, VALUES = 16, 4
NEVER = -(2**62)


class Step:
    """A gradient step on arguments of one kind: computed a few times, then recorded, then replayed."""

    def __init__(self, compute: Compute, beside: Beside) -> None:
        self.compute, self.beside = compute, beside
        #: How many steps an optimizer took, and which.
        self.taken = 0
        self.optimizer: object = None
        #: Where the graph reads its arguments, and which of the given tensors go there.
        self.copies: list[tuple[list[Tensor], list[int]]] = []
        self.forward: Recorded[Packed] | None = None
        self.backward: Recorded[Tensor] | None = None

    def loss(self, args: Any, tensors: list[Tensor]) -> Any:
        """Return what `compute` does for `args`, which hold `tensors`."""
        if self.forward is None:
            if self.taken < WARM:
                with self.beside():
                    return self.compute(*args)
            self.forward = self._recorded(args, tensors)  # with copies of these, which autograd must find unchanged
        else:
            for here, places in self.copies:
                torch._foreach_copy_(here, [tensors[place] for place in places])
        return self.forward.replay().copied()

    def _recorded(self, args: Any, tensors: list[Tensor]) -> Recorded[Packed]:
        here = [one.clone() for one in tensors]
        self.copies = [([here[place] for place in places], places) for places in by_type(here).values()]
        inputs = iter(here)
        given = mapped(args, lambda one: next(inputs) if isinstance(one, Tensor) else one)
        with self.beside():
            self.compute(*given)  # what is compiled anew for memory like this is compiled now
        return Recorded(lambda: Packed(self.compute(*given)), self.beside)

    def minimize(self, kernels: Callable[[Tensor], Tensor]) -> Tensor:
        """Take the gradient step of the loss that was replayed last; return a copy of what `kernels` returns."""
        forward = self.forward
        assert forward is not None
        if self.backward is None:
            self.backward = Recorded(lambda: kernels(first(forward.result.tree)), self.beside, forward.pool)
        return self.backward.replay().clone()


class Graphs:
    """The recorded steps of one learner, by loss, kind of arguments, and values of those options that move."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.beside = device, Beside(device)
        self.steps: dict[Hashable, dict[Hashable, Step]] = {}
        #: Which of the options that move each loss reads.
        self.reads: dict[Hashable, tuple[str, ...]] = {}
        #: Losses that no gradient step has followed yet.
        self.waiting: deque[tuple[Tensor, Step]] = deque(maxlen=4)

    def __reduce__(self) -> tuple[type[Graphs], tuple[torch.device]]:
        """A copy of a learner has parameters of its own and records its own steps."""
        return Graphs, (self.device,)

    def call(self, compute: Compute, plain: Compute, learner: Any, *args: Any, **named: Any) -> Any:
        """Return what `compute` does for a learner and further arguments; `plain` is the same, not compiled."""
        tensors: list[Tensor] = []
        configs: list[Config] = []
        kind = plain, described((args, named), tensors, configs)
        if kind not in self.steps and len(self.steps) < KINDS:
            self.steps[kind], self.reads[kind] = {}, _reads(plain, learner, (args, named))
        step = self._step(lambda args, named: compute(learner, *args, **named), kind, configs)
        if step is None:
            with self.beside():
                return compute(learner, *args, **named)
        self._check_alone(step)
        result = step.loss((args, named), tensors)
        self.waiting.append((first(result), step))
        return result

    def _step(self, compute: Compute, kind: Hashable, configs: list[Config]) -> Step | None:
        """The step of such arguments; None where kinds are too many, or an option moves on and on."""
        steps = self.steps.get(kind)
        if steps is None:
            return None
        values = tuple(getattr(config, name) for config in configs for name in self.reads[kind])
        if values not in steps and len(steps) < VALUES:
            steps[values] = Step(compute, self.beside)
        return steps.get(values)

    def _check_alone(self, step: Step) -> None:
        """A step whose loss is computed again before it was taken is never recorded: both would have one memory."""
        if not any(one is step for _, one in self.waiting):
            return
        if step.forward is not None:
            raise PluginError(
                "with --cudagraphs a loss was computed again before Optimizer.minimize had its gradient; leave "
                "--cudagraphs out, or take each step before the next loss"
            )
        step.taken = NEVER

    def replayed(self, loss: Tensor, optimizer: object) -> Step | None:
        """Return the step of a loss that a graph computed, and None of one whose gradient autograd knows."""
        for place, (waiting, step) in enumerate(self.waiting):
            if waiting is loss:
                del self.waiting[place]
                if step.forward is not None:
                    return step
                step.taken = step.taken + 1 if step.optimizer in (None, optimizer) else NEVER
                step.optimizer = optimizer
                return None
        return None


def _reads(plain: Compute, learner: Any, given: Any) -> tuple[str, ...]:
    """Return which options that follow schedules a loss reads: it is computed once to see that."""
    moving = {name.partition(".")[0] for name in learner.config.schedules}
    if not moving:
        return ()
    seen: set[str] = set()
    args, named = mapped(given, lambda one: watched(one, seen) if isinstance(one, Config) else one)
    with torch.no_grad():
        plain(learner, *args, **named)
    return tuple(sorted(seen & moving))


def first(result: Any) -> Tensor:
    """Return the loss itself from what a loss returned."""
    loss: Tensor = result[0] if isinstance(result, tuple) else result
    return loss

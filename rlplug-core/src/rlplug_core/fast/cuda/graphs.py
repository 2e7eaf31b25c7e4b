"""CUDA graphs of gradient steps: one for a loss, and one for its gradient, the clip and the optimizer's step.

A graph runs its kernels on the memory that they used when they were recorded. So the arguments of a loss are copied to
the memory that its graph reads, and its results are copied out. Parameters, gradients, the optimizer's state and the
buffers of networks must keep their memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from rlplug_core.config.options import Config, watch
from rlplug_core.errors import PluginError
from rlplug_core.fast.array_batches import Field
from rlplug_core.fast.cuda.cuda_graph import WARM, CudaGraph, on_recording_stream
from rlplug_core.fast.cuda.pytree import Leaves, Packed, by_type, map_tree

#: Computes a loss: it returns the loss, or a tuple with the loss first.
Compute: TypeAlias = Callable[..., Field]
#: The largest number of kinds of arguments with recorded steps of a loss, and of values of its options.
KINDS = 16
VALUES = 4
#: The value of `steps_taken` for a loss that is never recorded.
NEVER = -(2**62)
INSTEAD = "with --cudagraphs pass each loss unchanged to one optimizer before computing the next, or omit --cudagraphs"


class Step:
    """A gradient step on arguments of one kind: computed a few times, then recorded, then replayed."""

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self.compute = compute
        self.device = device
        #: The number of steps that an optimizer took, and the optimizer.
        self.steps_taken = 0
        self.optimizer: object = None
        #: The tensors that the graph reads, and the numbers of the arguments that are copied to them.
        self.copies: list[tuple[list[Tensor], list[int]]] = []
        self.forward: CudaGraph[Packed] | None = None
        self.backward: CudaGraph[Tensor] | None = None

    def loss(self, args: Field, tensors: list[Tensor]) -> Field:
        """Return the result of `compute` for `args`; `tensors` are the tensors in them."""
        if self.forward is None:
            if self.steps_taken < WARM:
                return self._compute(args)
            self.forward = self._record(args, tensors)
        else:
            for copies, places in self.copies:
                torch._foreach_copy_(copies, [tensors[place] for place in places])
        return self.forward.replay().copy()

    def _compute(self, args: Field) -> Field:
        with on_recording_stream(self.device):
            result = self.compute(*args)
        if Leaves(result).unknown is not None:  # the next replay would overwrite tensors in it
            self.steps_taken = NEVER
        return result

    def _record(self, args: Field, tensors: list[Tensor]) -> CudaGraph[Packed]:
        # Later calls write into the copies, not into these arguments, which autograd must find unchanged.
        copies = [tensor.clone() for tensor in tensors]
        self.copies = [
            ([copies[place] for place in places], places) for places in by_type(copies).values()
        ]
        inputs = iter(copies)
        copied_args = map_tree(
            args, lambda leaf: next(inputs) if isinstance(leaf, Tensor) else leaf
        )
        self._compute(copied_args)  # torch.compile may compile again for this memory
        return CudaGraph(lambda: Packed(self.compute(*copied_args)), self.device)

    def minimize(self, kernels: Callable[[Tensor], Tensor]) -> Tensor:
        """Take the gradient step of the last replayed loss; return a copy of the result of `kernels`."""
        forward = self.forward
        assert forward is not None
        if self.backward is None:
            self.backward = CudaGraph(
                lambda: kernels(first(forward.result.tree)), self.device, forward.pool
            )
        return self.backward.replay().clone()


@dataclass(eq=False)
class Waiting:
    """A loss without a gradient step so far; `stale` if its graph has computed another loss since."""

    loss: Tensor
    step: Step
    stale: bool = False


class Graphs:
    """Recorded steps of one learner, by loss, kind of arguments, and values of the options that the loss reads."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.steps: dict[Compute, dict[Hashable, dict[Hashable, Step]]] = {}
        #: The options that each loss reads.
        self.options_read: dict[Hashable, tuple[str, ...]] = {}
        self.waiting: deque[Waiting] = deque(maxlen=4)
        #: For each optimizer a function that returns its name if one of its steps was not finite, or "".
        self.failed_optimizers: list[Callable[[], str]] = []

    def __reduce__(self) -> tuple[type[Graphs], tuple[torch.device]]:
        """A copy of a learner has its own parameters and records its own steps."""
        return Graphs, (self.device,)

    @property
    def count(self) -> int:
        """Return the number of recorded steps."""
        kinds = [kind for kinds in self.steps.values() for kind in kinds.values()]
        return sum(step.backward is not None for steps in kinds for step in steps.values())

    def call(
        self,
        compute: Compute,
        plain: Compute,
        learner: Field,
        *args: Field,
        **named: Field,
    ) -> Field:
        """Return the result of `compute` for a learner and arguments; `plain` is the same function, not compiled."""
        leaves = Leaves((args, named))
        step = None
        # A graph may read copies of tensors without a gradient that are on its device.
        may_be_copied = all(
            not tensor.requires_grad and tensor.device.type == self.device.type
            for tensor in leaves.tensors
        )
        if leaves.unknown is None and may_be_copied:
            step = self._step(compute, plain, learner, (args, named), leaves)
        if step is not None:
            self._mark_overwritten(step)
        if step is None or step.steps_taken < 0:
            with on_recording_stream(self.device):
                return compute(learner, *args, **named)
        result = step.loss((args, named), leaves.tensors)
        self.waiting.append(Waiting(first(result), step))
        return result

    def _step(
        self,
        compute: Compute,
        plain: Compute,
        learner: Field,
        arguments: Field,
        leaves: Leaves,
    ) -> Step | None:
        """Return the step of arguments; None if there are too many kinds, or too many values of an option."""
        kinds = self.steps.setdefault(plain, {})
        if leaves.kind not in kinds:
            if len(kinds) == KINDS:
                return None
            self.options_read[plain, leaves.kind] = self._read(plain, learner, arguments)
            kinds[leaves.kind] = {}
        steps = kinds[leaves.kind]
        options_read = self.options_read[plain, leaves.kind]
        values = tuple(getattr(config, name) for config in leaves.configs for name in options_read)
        try:
            step = steps.get(values)
        except TypeError:  # an option that can change in place
            return None
        if step is None and len(steps) < VALUES:
            step = steps[values] = Step(
                lambda args, named: compute(learner, *args, **named), self.device
            )
        return step

    def _read(
        self,
        plain: Compute,
        learner: Field,
        arguments: Field,
    ) -> tuple[str, ...]:
        """Return the options that a loss reads, by computing it once."""
        options_read: set[str] = set()
        args, named = map_tree(
            arguments,
            lambda leaf: watch(leaf, options_read) if isinstance(leaf, Config) else leaf,
        )
        with on_recording_stream(self.device):
            plain(learner, *args, **named)
        return tuple(sorted(options_read))

    def _mark_overwritten(self, step: Step) -> None:
        """Mark the losses of a step that still wait: the next replay overwrites the memory of their graph.

        A loss that was computed without a graph shows that a step may come later or never, so it is not recorded.
        """
        for loss in [loss for loss in self.waiting if loss.step is step]:
            loss.stale = True
            if step.forward is None:
                step.steps_taken = NEVER
                self.waiting.remove(loss)  # so that its graph of autograd is freed

    def step_of(self, loss: Tensor, optimizer: object) -> Step | None:
        """Return the step of a loss that a graph computed; None for a loss with a gradient by autograd.

        Raises:
            PluginError: its graph has computed another loss since, or recorded the step of another optimizer; or the
                loss was computed from the loss of a graph.
        """
        for place, waiting in enumerate(self.waiting):
            if waiting.loss is loss:
                del self.waiting[place]
                return self._take_step(waiting, optimizer)
        if not loss.requires_grad:
            raise PluginError(
                f"Optimizer.minimize got a loss that is not what the loss method returned; {INSTEAD}"
            )
        return None

    def _take_step(self, waiting: Waiting, optimizer: object) -> Step | None:
        step = waiting.step
        if step.forward is None:
            step.steps_taken = (
                step.steps_taken + 1 if step.optimizer in (None, optimizer) else NEVER
            )
            step.optimizer = optimizer
            return None
        if waiting.stale:
            raise PluginError(
                f"a loss was computed again before Optimizer.minimize used it; {INSTEAD}"
            )
        if step.optimizer is not optimizer:
            raise PluginError(f"a loss went to a different optimizer than before; {INSTEAD}")
        return step


def first(result: Field) -> Tensor:
    """Return the loss from the result of a loss function."""
    return result[0] if isinstance(result, tuple) else result

"""Gradient steps: parameters as one flat tensor, and `Optimiser.minimise`, the seam between learners and runners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rlplug_core.clock import Clock
from rlplug_core.errors import NonFinite
from rlplug_core.late import Check, CheckLate
from rlplug_core.rules import Rule
from rlplug_core.schedules import Schedule, throughout
from rlplug_core.types import State


class SharedState:
    """What the optimisers of asynchronous learners share: flat parameters and the rule's state."""

    def __init__(self, parameters: Tensor, state: dict[str, Tensor]) -> None:
        self.parameters, self.state = parameters, state


class Optimiser:
    """Minimises losses over `parameters`, which become views of one flat tensor, as do their gradients.

    Args:
        parameters: those that the losses train; all on one device, of one dtype.
        rule: how a gradient changes them.
        lr: the step size as a function of the clock's progress.
        clip: the largest norm of the whole gradient, a number or a function of progress; or None.
        shared: with it, gradients of these parameters are applied to the shared ones without a lock, and the result is
            pulled back (Hogwild); the rule's state is shared too.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], rule: Rule, lr: Schedule, clip: Schedule | float | None = None,
        shared: SharedState | None = None,
    ) -> None:  # fmt: skip
        self.parameters = list(dict.fromkeys(parameters))
        self.rule, self.lr, self.clip = rule, lr, None if clip is None else throughout(clip)
        #: Whose gradients are worked out: not those of other parameters on the way. None is all that there are.
        self.inputs: list[nn.Parameter] | None = self.parameters
        self.flat, self.gradient = flatten(self.parameters)
        self.borrowed = shared is not None
        self.target = self.flat if shared is None else shared.parameters
        self.state = rule.start(self.flat) if shared is None else shared.state
        #: How messages call it.
        self.name = "the optimiser"
        on_host = self.flat.device.type == "cpu"
        self.check: Check = check_now if on_host else CheckLate(check_now)
        self.pull()

    def minimise(self, loss: Tensor, clock: Clock, age: int = 0) -> Tensor:
        """One step down `loss`, of the size and clip of `age` env steps ago; gives the gradient's norm before the clip.

        Raises:
            NonFinite: the loss or the gradient is; on the CPU before the parameters change, elsewhere an update
                later, or when its state is asked for.
        """
        loss.backward(inputs=self.inputs)
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        self.check(norm, loss, self.name)
        progress = clock.progress_before(age)
        if self.clip is not None:
            self.gradient.mul_((self.clip(progress) / (norm + 1e-6)).clamp_(max=1.0))
        self.rule.step(self.target, self.gradient, self.state, self.lr(progress) * clock.scale)
        self.gradient.zero_()
        self.pull()
        return norm

    def pull(self) -> None:
        """Take over the shared parameters; touches nothing else."""
        if self.target is not self.flat:
            self.flat.copy_(self.target)

    def share(self, place: Callable[[Tensor], Tensor]) -> SharedState:
        """From now on step shared copies of parameters and state; `place` puts a tensor where all can reach it."""
        self.target = place(self.flat.clone())
        self.state = {name: place(tensor) for name, tensor in self.state.items()}
        return SharedState(self.target, self.state)

    def state_dict(self) -> State:
        """The rule's state, and parameters that this optimiser shares with others; what it only borrows is not its own.

        Parameters that nobody shares are saved by their modules.

        Raises:
            NonFinite: the last step met what is, and nobody has looked yet: no checkpoint holds what came of it.
        """
        if isinstance(self.check, CheckLate):
            self.check.look("at the last step")
        if self.borrowed:
            return {}
        shared = {} if self.target is self.flat else {"parameters": self.target}
        return {"state": self.state, **shared}

    def load_state_dict(self, state: State) -> None:
        if self.borrowed:
            return
        if self.target is not self.flat and "parameters" in state:
            self.target.copy_(state["parameters"])
        for name, tensor in self.state.items():
            tensor.copy_(state["state"][name])
        self.pull()


#: Builds an optimiser from parameters, rule, step size and clip: the seam that a runner passes in its `Context`.
OptimiserFactory: TypeAlias = Callable[[Sequence[nn.Parameter], Rule, Schedule, Schedule | float | None], Optimiser]


def flatten(parameters: Sequence[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move `parameters` and their gradients into two flat tensors, of which they become views."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    gradient = torch.zeros_like(flat)
    offset = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = flat[offset : offset + count].view_as(parameter)
        parameter.grad = gradient[offset : offset + count].view_as(parameter)
        offset += count
    return flat, gradient


def joined(tensors: list[Tensor]) -> list[Tensor]:
    """One flat view of tensors that follow one another in memory, as `flatten` lays them; others as they are."""
    first = tensors[0].detach()
    end = first.storage_offset()
    for tensor in tensors:
        memory = tensor.untyped_storage().data_ptr()
        if memory != first.untyped_storage().data_ptr() or tensor.storage_offset() != end or not tensor.is_contiguous():
            return tensors
        end += tensor.numel()
    return [first.as_strided((end - first.storage_offset(),), (1,))]


def host(value: Tensor) -> float:
    """Read a number from the device: the one declared way to do so inside an update, because it has to wait."""
    number: float = value.item()
    return number


def check_now(norm: Tensor, loss: Tensor, name: str) -> None:
    """Raise `NonFinite` where a gradient's norm or its loss is: `host` reads by hand, 0.8 us for both on the CPU."""
    if not isfinite(norm.item() + loss.item()):
        raise NonFinite(f"{name} met the loss {host(loss):g} and a gradient of norm {host(norm):g}")

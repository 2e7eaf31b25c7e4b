"""Gradient steps: `Optimizer.minimize` on one flat tensor of parameters, which runners may share between processes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import overridable
from rlplug_core.clock import Clock
from rlplug_core.config.schedules import Constant, Schedule, throughout
from rlplug_core.errors import NonFinite
from rlplug_core.learning.deferred_nan_check import Check, DeferredNanCheck
from rlplug_core.learning.mean_gradient import MeanGradient
from rlplug_core.learning.update_rules import UpdateRule, takes_tensors
from rlplug_core.types import Array, State


class DeviceStep(Protocol):
    """Takes an optimizer's steps on the device; all numbers that change are in the device's memory."""

    def __call__(self, loss: Tensor, clock: Clock) -> Tensor:
        """Take the step of a loss []; return the norm [] of its gradient before clipping."""
        ...

    def look(self) -> None:
        """Wait for all steps; raise NonFinite if a loss or a gradient was not finite."""
        ...

    def reset(self) -> None:
        """Start again, after parameters were loaded."""
        ...


@overridable
def backward(
    loss: Tensor,
    parameters: list[nn.Parameter],
    gradient: Tensor,
) -> None:
    """Write the gradient of a loss into the `.grad` of parameters.

    Args:
        loss: [].
        parameters: the trained parameters.
        gradient: [P], the flat gradient, zero; every `.grad` is a view of it.
    """
    loss.backward(inputs=parameters)


@dataclass(eq=False)
class SharedState:
    """The state that the optimizers of asynchronous learners share: flat parameters and the rule's state."""

    parameters: Tensor
    state: dict[str, Tensor]


class Optimizer:
    """Minimizes losses over `parameters`, which become views of one flat tensor, as do their gradients.

    Args:
        parameters: the trained parameters; all on one device, of one dtype.
        name: its name in messages and shared state.
        rule: the optimization method, such as Adam.
        learning_rate: a number or a function of the clock's progress.
        max_grad_norm: the largest norm of the whole gradient, a number or a function of progress; None: no clipping.
        shared: parameters and state that several processes share. Gradients are applied to them without a lock, and the
            result is copied back (Hogwild).
        mean: averages every gradient over several learners, which then all take the same step.
    """

    #: Multiplies the learning rate; `adapt` changes it.
    factor = 1.0

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        name: str,
        rule: UpdateRule,
        learning_rate: Schedule | float,
        max_grad_norm: Schedule | float | None = None,
        shared: SharedState | None = None,
        mean: MeanGradient | None = None,
    ) -> None:
        self.parameters = list(dict.fromkeys(parameters))
        self.name = name
        self.rule = rule
        self.mean = mean
        self.learning_rate = throughout(learning_rate)
        self.max_grad_norm = None if max_grad_norm is None else throughout(max_grad_norm)
        #: The current values of the two schedules; constants are not computed again.
        self.rate = self.learning_rate(0.0)
        self.clip = None if self.max_grad_norm is None else self.max_grad_norm(0.0)
        schedules = (self.learning_rate, self.max_grad_norm)
        self.rate_varies = not all(isinstance(schedule, Constant | None) for schedule in schedules)
        self.flat, self.gradient = flatten(self.parameters)
        self.uses_shared = shared is not None
        self.target = self.flat if shared is None else shared.parameters
        self.state = rule.start(self.flat) if shared is None else shared.state
        #: The parts of the flat parameters that steps do not change, and those without weight decay.
        self.frozen: list[slice] = []
        self.undecayed: list[slice] = []
        on_host = self.flat.device.type == "cpu"
        self.check: Check = check_now if on_host else DeferredNanCheck(check_now)
        #: The gradient as an array, if NumPy computes its norm and clips it, with less overhead per call than torch.
        self.gradient_array = self._as_array()
        #: Takes the steps, if they are recorded as CUDA graphs.
        self.on_device: DeviceStep | None = None
        self.pull()

    def __getstate__(self) -> dict[str, object]:
        """Leave out the array, which would not be a view of the gradient in a copy."""
        return {**self.__dict__, "gradient_array": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.gradient_array = self._as_array()

    def _as_array(self) -> Array | None:
        is_float = self.gradient.dtype in (torch.float32, torch.float64)
        return self.gradient.numpy() if self.gradient.is_cpu and is_float else None

    @property
    def recordable(self) -> bool:
        """Return whether steps can be recorded: no other learner takes part, and the rule runs on the device."""
        return takes_tensors(self.rule) and self.mean is None and not self.uses_shared

    def minimize(
        self,
        loss: Tensor,
        clock: Clock,
        steps_ago: int = 0,
        *,
        age: int = 0,
    ) -> Tensor:
        """Take a gradient step and set the gradient to zero.

        Args:
            loss: [].
            clock: for the schedules of the learning rate and of `max_grad_norm`.
            steps_ago: number of env steps of this learner; schedules have the values of that many steps ago. An update
                on a rollout passes the rollout's size, so that the schedules have their values at its start.
            age: the former name of `steps_ago`, which the next version removes.

        Returns:
            The norm [] of the gradient before clipping; with several learners, of their mean gradient.

        Raises:
            NonFinite: the loss or the gradient is not finite: on the CPU before the parameters change, on other devices
                at the next update or when the state is saved.
        """
        if age:
            warnings.warn("minimize: age is now steps_ago", DeprecationWarning, stacklevel=2)
            steps_ago = age
        if self.rate_varies:
            self._follow_schedules(clock, steps_ago)
        if self.on_device is not None:
            return self.on_device(loss, clock)
        backward(loss, self.parameters, self.gradient)
        if self.mean is not None:
            self.mean(self.gradient)
        for part in self.frozen:
            self.gradient[part] = 0
        array = self.gradient_array
        norm = self._check_and_clip(loss, self.clip, array)
        if self.frozen or self.undecayed:
            self.step_in_parts(self.rate * clock.scale)
        else:
            self.rule.step(self.target, self.gradient, self.state, self.rate * clock.scale)
        if array is None:
            self.gradient.zero_()
        else:
            array.fill(0)
        if self.target is not self.flat:
            self.pull()
        return norm

    def _follow_schedules(self, clock: Clock, steps_ago: int) -> None:
        """Set the learning rate and the largest norm to their values `steps_ago` env steps of this learner ago."""
        learners = (
            1 if self.mean is None else self.mean.ranks
        )  # the clock counts the steps of all learners
        progress = clock.progress_before(steps_ago * learners)
        self.rate = self.learning_rate(progress) * self.factor
        self.clip = None if self.max_grad_norm is None else self.max_grad_norm(progress)

    def adapt(self, kl: float, desired_kl: float) -> None:
        """Adapt the learning rate to the KL divergence of an update, like adaptive schedules of rsl_rl and RL Games.

        If the divergence is above twice the desired one, the rate is divided by 1.5, but not to below 1e-5; if it is
        below half of the desired one, the rate is multiplied by 1.5, but not to above 1e-2 (Rudin et al., 2022,
        arXiv:2109.11978, appendix). A divergence or a rate of 0 changes nothing. The next gradient step uses the new
        rate; checkpoints save its factor.

        Args:
            kl: KL(old policy || policy) in nats.
            desired_kl: the KL divergence that updates should have.
        """
        if kl <= 0 or self.rate <= 0:
            return
        if kl > 2 * desired_kl:
            self.factor *= max(self.rate / 1.5, min(self.rate, 1e-5)) / self.rate
        elif kl < desired_kl / 2:
            self.factor *= min(self.rate * 1.5, max(self.rate, 1e-2)) / self.rate
        self.rate_varies = True

    def step_in_parts(self, lr: float | Tensor) -> None:
        """Take a step that leaves `frozen` parts unchanged and applies no weight decay to `undecayed` parts.

        Args:
            lr: the learning rate; a tensor [] only if the rule takes one.
        """
        # Other processes would read the 0 below in shared parameters, so these all have weight decay.
        undecayed = self.undecayed if self.target is self.flat else []
        undecayed_values = [(part, self.target[part].clone()) for part in undecayed]
        # Weight decay would change frozen parts, too.
        frozen_values = [(part, self.target[part].clone()) for part in self.frozen]
        # The weight decay of a parameter of 0 is 0, and the rest of a step does not depend on the parameter.
        for part, _ in undecayed_values:
            self.target[part] = 0
        self.rule.step(self.target, self.gradient, self.state, lr)  # type: ignore[arg-type]  # see `takes_tensors`
        for part, before in undecayed_values:
            self.target[part] += before
        for part, before in frozen_values:
            self.target[part] = before

    def part(self, parameter: nn.Parameter) -> slice:
        """Return the place of a parameter in the flat tensor."""
        index = next(number for number, each in enumerate(self.parameters) if each is parameter)
        start = sum(each.numel() for each in self.parameters[:index])
        return slice(start, start + parameter.numel())

    def _check_and_clip(
        self,
        loss: Tensor,
        clip: float | None,
        gradient: Array | None,
    ) -> Tensor:
        """Check that loss and gradient are finite, clip the gradient to `clip`, and return its norm before clipping.

        Args:
            loss: [].
            clip: the largest norm, if there is one.
            gradient: [P] as an array, which has less overhead per call than torch; None if torch computes the norm.
        """
        if gradient is None:
            norm: Tensor = torch.linalg.vector_norm(self.gradient)
            self.check(norm, loss, self.name)
            if clip is not None:
                self.gradient.mul_((clip / (norm + 1e-6)).clamp_(max=1.0))
            return norm
        length = sqrt(gradient.dot(gradient))
        if not isfinite(length + loss.item()):
            raise nonfinite(length, loss.item(), self.name)
        if clip is not None and length + 1e-6 > clip:
            gradient *= clip / (length + 1e-6)
        return torch.from_numpy(np.asarray(length, gradient.dtype))  # `torch.tensor` takes longer

    def pull(self) -> None:
        """Copy `target` to the parameters of this process, if others share it."""
        if self.target is not self.flat:
            self.flat.copy_(self.target)

    def share(self, place: Callable[[Tensor], Tensor]) -> SharedState:
        """Copy parameters and state to shared memory; steps change the copies from now on.

        Args:
            place: copies a tensor [...] to shared memory.

        Returns:
            The shared tensors, for optimizers in other processes.
        """
        self.target = place(self.flat.clone())
        self.state = {name: place(tensor) for name, tensor in self.state.items()}
        return SharedState(self.target, self.state)

    def state_dict(self) -> State:
        """Return the rule's state, and the parameters that this optimizer shares with other processes.

        Modules save parameters that are not shared.

        Raises:
            NonFinite: the last step was not finite and was not checked yet; so no checkpoint contains its result.
        """
        self.look()
        if self.uses_shared:
            return {}
        shared = {} if self.target is self.flat else {"parameters": self.target}
        factor = {} if self.factor == 1 else {"factor": self.factor}
        return {"state": self.state, **shared, **factor}

    def look(self) -> None:
        """Check the steps on a device that were not checked yet; this waits for the device.

        Raises:
            NonFinite: a step was not finite.
        """
        if isinstance(self.check, DeferredNanCheck):
            self.check.look("at the last step")
        if self.on_device is not None:
            self.on_device.look()

    def load_state_dict(self, state: State) -> None:
        if self.uses_shared:
            return
        if self.on_device is not None:
            self.on_device.reset()
        if self.target is not self.flat and "parameters" in state:
            self.target.copy_(state["parameters"])
        for name, tensor in self.state.items():
            tensor.copy_(state["state"][name])
        self.factor = state.get("factor", 1.0)
        self.rate_varies = self.rate_varies or self.factor != 1
        self.pull()


class OptimizerFactory(Protocol):
    """Makes an optimizer; a runner passes one in its `Context`."""

    def __call__(
        self,
        parameters: Iterable[nn.Parameter],
        /,
        *,
        name: str,
        rule: UpdateRule,
        learning_rate: Schedule | float,
        max_grad_norm: Schedule | float | None = None,
    ) -> Optimizer: ...


def trainable_parameters(
    modules: Iterable[nn.Module],
    device: torch.device,
) -> list[nn.Parameter]:
    """Move modules to a device, and return their parameters that require a gradient."""
    return [
        parameter
        for module in modules
        for parameter in module.to(device).parameters()
        if parameter.requires_grad
    ]


def flatten(parameters: Sequence[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Move parameters and their gradients into two flat tensors, and make them views of these."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
    gradient = torch.zeros_like(flat)
    offset = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = flat[offset : offset + count].view_as(parameter)
        parameter.grad = gradient[offset : offset + count].view_as(parameter)
        offset += count
    return flat, gradient


def flat_view(tensors: list[Tensor]) -> list[Tensor]:
    """Return one flat view of tensors that are adjacent in memory, as after `flatten`; other tensors unchanged."""
    first = tensors[0].detach()
    end = first.storage_offset()
    for tensor in tensors:
        memory = tensor.untyped_storage().data_ptr()
        if (
            memory != first.untyped_storage().data_ptr()
            or tensor.storage_offset() != end
            or not tensor.is_contiguous()
        ):
            return tensors
        end += tensor.numel()
    return [first.as_strided((end - first.storage_offset(),), (1,))]


def to_float(value: Tensor) -> float:
    """Read a number from the device. An update waits for the device here, and must do so only by this function.

    Args:
        value: [], on any device.
    """
    return value.item()


def check_now(norm: Tensor, loss: Tensor, name: str) -> None:
    """Raise `NonFinite` if a gradient's norm or a loss is not finite; on the CPU both reads together take 0.8 us."""
    if not isfinite(norm.item() + loss.item()):
        raise nonfinite(to_float(norm), to_float(loss), name)


def nonfinite(norm: float, loss: float, name: str) -> NonFinite:
    """Return the error of the optimizer `name` for a gradient or loss that is not finite."""
    return NonFinite(f"{name} met the loss {loss:g} and a gradient of norm {norm:g}")

"""Update rules of optimizers: each changes flat parameters by a flat gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from rlplug_core.accelerator import kernel
from rlplug_core.errors import BadConfig


class UpdateRule(Protocol):
    """Changes flat parameters by a flat gradient. `start` makes its state once, so that processes can share it."""

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        """Make the state of the rule, once.

        Args:
            parameters: [P], all parameters of an optimizer in one vector.

        Returns:
            Tensors by name; `step` changes them in place.
        """
        ...

    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float,
    ) -> None:
        """Move the parameters in place.

        Args:
            parameters, gradient: [P].
            state: the result of `start`.
            lr: the learning rate of this update.
        """
        ...


class SGD:
    """Gradient descent with torch's momentum: v = momentum v + g. A step is lr v; if nesterov, lr (g + momentum v)."""

    def __init__(
        self,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        if nesterov and not momentum:
            raise BadConfig(
                "optimizer_kwargs.nesterov needs momentum, and there is none; give --optimizer-kwargs.momentum too"
            )
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return {"velocity": torch.zeros_like(parameters)} if self.momentum else {}

    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float | Tensor,
    ) -> None:
        if self.weight_decay:
            gradient = gradient.add(parameters, alpha=self.weight_decay)
        if self.momentum:
            velocity = state["velocity"].mul_(self.momentum).add_(gradient)
            gradient = gradient.add(velocity, alpha=self.momentum) if self.nesterov else velocity
        if isinstance(lr, Tensor):
            parameters.sub_(gradient * lr)
        else:
            parameters.add_(gradient, alpha=-lr)


class RMSProp:
    """RMSProp as in A3C (Mnih et al., 2016, arXiv:1602.01783, section 4): epsilon inside the square root.

    Args:
        alpha: decay rate of the mean square.
        eps: added to the mean square.
        initial_accumulator_value: the mean square before the first step. With 0, the first steps are up to
            1 / sqrt(1 - alpha) times as long as later ones.
    """

    def __init__(
        self,
        alpha: float = 0.99,
        eps: float = 1e-5,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        self.alpha = alpha
        self.eps = eps
        self.initial_accumulator_value = initial_accumulator_value

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return {"square": torch.full_like(parameters, self.initial_accumulator_value)}

    @kernel
    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float | Tensor,
    ) -> None:
        square = state["square"]
        square.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        root = (square + self.eps).sqrt_()
        if isinstance(lr, Tensor):
            parameters.sub_(gradient / root * lr)
        else:
            parameters.addcdiv_(gradient, root, value=-lr)


class RMSPropTF(RMSProp):
    """RMSProp as in TensorFlow 1 and Stable-Baselines3's `RMSpropTFLike`: the mean square starts at 1."""

    def __init__(
        self,
        alpha: float = 0.99,
        eps: float = 1e-5,
        initial_accumulator_value: float = 1.0,
    ) -> None:
        super().__init__(alpha, eps, initial_accumulator_value)


class Adam:
    """Adam (Kingma and Ba, 2015, arXiv:1412.6980) by torch's fused kernel; weight decay is added to the gradient.

    The kernel is called directly: `torch.optim.adam.adam` around it takes longer than the kernel on small networks.
    If numba is installed, a loop replaces the kernel and takes half the time.
    """

    fused: ClassVar[Callable[..., None]] = staticmethod(torch._fused_adam_)
    #: Whether weight decay is added to the gradient; numba's loop does that.
    decays_gradient: ClassVar[bool] = True

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.0,
    ) -> None:
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        zeros = torch.zeros_like
        return {
            "mean": zeros(parameters),
            "square": zeros(parameters),
            "steps": parameters.new_zeros(()),
        }

    @kernel
    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float | Tensor,
    ) -> None:
        # The kernel reads the number of steps for the bias correction, but does not increase it.
        steps = state["steps"]
        # NumPy's calls come before and after this one, and between them a call of torch takes three times as long.
        if steps.is_cpu:
            steps.numpy()[...] += 1
        else:
            steps.add_(1)
        self.fused(
            [parameters],
            [gradient],
            [state["mean"]],
            [state["square"]],
            [],
            [steps],
            amsgrad=False,
            beta1=self.betas[0],
            beta2=self.betas[1],
            lr=lr,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=False,
        )


class AdamW(Adam):
    """Adam with weight decay that shrinks the weights themselves (Loshchilov and Hutter, 2019, arXiv:1711.05101)."""

    fused: ClassVar[Callable[..., None]] = staticmethod(torch._fused_adamw_)
    decays_gradient: ClassVar[bool] = False

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(betas, eps, weight_decay)


class Torch:
    """Any class of `torch.optim` that can step on one flat tensor and has a state of tensors only.

    Torch makes this state in the first step, so `start` takes a step on a copy to get the shapes. The first real step
    is that of a new optimizer, which sets all values.

    Args:
        name: the name of the class, such as `NAdam`.
        arguments: keyword arguments of the class, without the learning rate.

    Raises:
        BadConfig: the class cannot step on one flat tensor, or its state has something that is not a tensor.
    """

    def __init__(self, name: str, arguments: dict[str, object]) -> None:
        self.name = name
        self.arguments = arguments
        self.optimizer: torch.optim.Optimizer | None = None
        self._state_tensors(torch.zeros(1))  # raises BadConfig if rlplug cannot use the class
        self.weight_decay: float = self._make_optimizer(torch.zeros(1)).defaults.get(
            "weight_decay", 0.0
        )

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return {**self._state_tensors(parameters), "begun": torch.zeros(())}

    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float,
    ) -> None:
        optimizer = self.optimizer
        if (
            optimizer is None
            or optimizer.param_groups[0]["params"][0] is not parameters
            or not state["begun"]
        ):
            optimizer = self.optimizer = self._make_optimizer(parameters)
            if state["begun"]:
                tensors = {name: tensor for name, tensor in state.items() if name != "begun"}
                optimizer.state[parameters].update(tensors)
        parameters.grad = gradient
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        parameters.grad = None
        # Torch may have replaced tensors; those of `state` stay, because processes may share them.
        torch_state = optimizer.state[parameters]
        for name, tensor in state.items():
            if name != "begun" and torch_state[name] is not tensor:
                torch_state[name] = tensor.copy_(torch_state[name])
        state["begun"].fill_(1)

    def _make_optimizer(self, parameters: Tensor) -> torch.optim.Optimizer:
        return getattr(torch.optim, self.name)([parameters], lr=1.0, **self.arguments)

    def _state_tensors(self, parameters: Tensor) -> dict[str, Tensor]:
        """Return tensors of the shapes that the state has after a step."""
        copy = parameters.detach().clone()
        try:
            optimizer = self._make_optimizer(copy)
            copy.grad = torch.zeros_like(copy)
            optimizer.step()
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            raise BadConfig(
                f"torch.optim.{self.name} does not step on one flat tensor ({str(error).splitlines()[0]}); "
                f"use {rule_names()} or another class of torch.optim"
            ) from error
        tensors = {
            name: value for name, value in optimizer.state[copy].items() if value is not None
        }
        if rest := [name for name, value in tensors.items() if not isinstance(value, Tensor)]:
            raise BadConfig(
                f"torch.optim.{self.name} keeps '{rest[0]}', which is not a tensor and can be neither saved nor "
                f"shared; use {rule_names()} or another class of torch.optim"
            )
        return tensors


#: The rules of rlplug by name; every other name is that of a class of torch.optim.
RULES: dict[str, type[UpdateRule]] = {
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSProp,
    "rmsprop_tf": RMSPropTF,
    "sgd": SGD,
}


def takes_tensors(rule: UpdateRule) -> bool:
    """Return whether a rule of this file takes the learning rate as a tensor [] on the device; False for others."""
    return type(rule) in (SGD, RMSProp, RMSPropTF, Adam, AdamW)


def decays(rule: UpdateRule) -> bool:
    """Return whether a rule of this file has weight decay; False for other rules, for which it is unknown."""
    return isinstance(rule, SGD | Adam | Torch) and rule.weight_decay > 0


def rule_names() -> str:
    """Return the names of rlplug's own rules, as a list for messages."""
    return ", ".join(RULES)

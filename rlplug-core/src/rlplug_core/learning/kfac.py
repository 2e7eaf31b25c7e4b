"""K-FAC: an update rule for the natural gradient; Kronecker products approximate the Fisher matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from rlplug_core.errors import NonFinite

#: The smallest divisor and the smallest damping.
TINY = 1e-12


@dataclass(frozen=True)
class Layer:
    """The place of a layer's parameters in the flat parameters: the weight [outputs, inputs], then the bias."""

    weight: Tensor
    offset: int
    outputs: int
    inputs: int
    bias: bool

    def matrix(self, flat: Tensor) -> Tensor:
        """Return the layer's part of a flat tensor as a copy [outputs, inputs (+ 1 with bias)]."""
        weights = self.outputs * self.inputs
        matrix = flat[self.offset : self.offset + weights].view(self.outputs, self.inputs)
        if not self.bias:
            return matrix.clone()
        start = self.offset + weights
        return torch.cat([matrix, flat[start : start + self.outputs].unsqueeze(1)], 1)

    def write(self, flat: Tensor, matrix: Tensor) -> None:
        """Write a matrix back into the layer's part of a flat tensor; the inverse of `matrix`."""
        weights = self.outputs * self.inputs
        flat[self.offset : self.offset + weights] = matrix[:, : self.inputs].reshape(-1)
        if self.bias:
            flat[self.offset + weights : self.offset + weights + self.outputs] = matrix[:, -1]


class Capture(TorchFunctionMode):
    """Records the inputs and outputs of layers until the context ends; inputs of convolutions as patches."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.numbers = {id(layer.weight): number for number, layer in enumerate(layers)}
        self.calls: list[tuple[int, Tensor, Tensor]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        output = func(*args, **(kwargs or {}))
        if func is functional.linear and id(args[1]) in self.numbers:
            self.calls.append((self.numbers[id(args[1])], args[0].detach(), output))
        elif func is functional.conv2d and id(args[1]) in self.numbers:
            stride, padding, dilation = args[3:6]  # as nn.Conv2d passes them
            patches = functional.unfold(
                args[0].detach(), args[1].shape[2:], dilation, padding, stride
            )
            self.calls.append((self.numbers[id(args[1])], patches.transpose(1, 2), output))
        else:
            return output
        return output.clone()  # the caller may change it in place


class KFAC:
    """An `UpdateRule` that follows the natural gradient within a trust region for each module.

    See Martens and Grosse, 2015, arXiv:1503.05671; for convolutions Grosse and Martens, 2016, arXiv:1602.01407; for the
    trust region Wu et al., 2017, arXiv:1708.05144, section 3.3.

    The Fisher matrix of a layer is approximated by a Kronecker product: of the second moments of the layer's inputs,
    and of those of the gradient of the log-likelihood at its outputs. For other parameters, such as those of grouped
    convolutions, it is the identity. The learner calls `capture` and `observe` to update the moments. Steps use the
    new moments after a call of `refresh`, which takes longer, so the learner calls it less often.

    Args:
        regions: the modules in the optimizer's order, each with the largest KL divergence of a step, None for no limit.
            A quadratic model estimates the divergence.
        damping: added to the eigenvalues of the Fisher matrix.
        momentum: share of the previous step in the next one.
        decay: share of the old moments in an update.

    Raises:
        ValueError: two regions share a parameter.
    """

    def __init__(
        self,
        regions: Sequence[tuple[nn.Module, float | None]],
        damping: float = 0.01,
        momentum: float = 0.9,
        decay: float = 0.95,
    ) -> None:
        self.damping = damping
        self.momentum = momentum
        self.decay = decay
        self.layers: list[Layer] = []
        self.spans: list[tuple[slice, float | None]] = []
        self.state: dict[str, Tensor] = {}
        end = 0
        offsets: dict[int, int] = {}
        for module, radius in regions:
            start = end
            trained = [each for each in module.parameters() if each.requires_grad]
            for parameter in trained:
                if id(parameter) in offsets:
                    raise ValueError(
                        "two regions of K-FAC share a parameter; make one region of a module that contains both"
                    )
                offsets[id(parameter)] = end
                end += parameter.numel()
            self.layers += _layers(module.modules(), offsets)
            self.spans.append((slice(start, end), radius))

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        self.state = {
            "velocity": torch.zeros_like(parameters),
            "observed": parameters.new_zeros(()),
            "width": parameters.new_ones(len(self.spans)),
        }
        for number, layer in enumerate(self.layers):
            for side, size in (("inputs", layer.inputs + layer.bias), ("outputs", layer.outputs)):
                self.state[f"{number}/{side}"] = torch.eye(
                    size, dtype=parameters.dtype, device=parameters.device
                )
                self.state[f"{number}/{side}/values"] = parameters.new_ones(size)
                self.state[f"{number}/{side}/vectors"] = self.state[f"{number}/{side}"].clone()
        return self.state

    def tune(
        self,
        radii: Sequence[float | None],
        damping: float,
        momentum: float,
    ) -> None:
        """Change the options for all later steps; `radii` are in the order of the regions."""
        self.spans = [(span, radius) for (span, _), radius in zip(self.spans, radii, strict=True)]
        self.damping = max(damping, TINY)
        self.momentum = momentum

    def capture(self) -> Capture:
        """Return a context that records a forward pass of the modules, for `observe`."""
        return Capture(self.layers)

    def observe(
        self,
        capture: Capture,
        log_likelihood: Tensor,
        weight: Tensor,
    ) -> None:
        """Update the running moments with those of a batch.

        Args:
            capture: the record of the forward pass that led to the log-likelihoods.
            log_likelihood: [B] of outcomes drawn from the model itself, such as the actions of the policy.
            weight: [B]; only rows with a weight above 0 count.
        """
        used = (weight > 0).to(log_likelihood.dtype)
        count = used.sum().clamp(min=1)
        outputs = [output for _, _, output in capture.calls]
        gradients = torch.autograd.grad(log_likelihood @ used, outputs) if outputs else ()
        self.state["observed"] += 1
        keep = (1 - 1 / self.state["observed"]).clamp(max=self.decay)
        for (number, inputs, _), gradient in zip(capture.calls, gradients, strict=True):
            layer = self.layers[number]
            positions = gradient.flatten(2).transpose(1, 2) if layer.weight.ndim == 4 else gradient
            # A row has several positions in a convolution, or if a layer is used several times.
            positions = positions.reshape(len(used), -1, layer.outputs)
            patches = inputs.reshape(len(used), -1, layer.inputs)
            if layer.bias:
                patches = torch.cat([patches, torch.ones_like(patches[..., :1])], -1)
            moments = {
                "inputs": torch.einsum("bli,blj,b->ij", patches, patches, used) / count,
                "outputs": torch.einsum("bli,blj->ij", positions, positions)
                / (count * positions.shape[1]),
            }
            for side, moment in moments.items():
                self.state[f"{number}/{side}"].lerp_(moment, 1 - keep)

    def refresh(self) -> None:
        """Compute the eigenvalues and eigenvectors of the current moments, which later steps use.

        Raises:
            NonFinite: a moment is not finite.
        """
        for number in range(len(self.layers)):
            for side in ("inputs", "outputs"):
                try:
                    values, vectors = torch.linalg.eigh(self.state[f"{number}/{side}"])
                except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
                    raise NonFinite(
                        f"K-FAC's moments of the {side} of layer {number} are not finite"
                    ) from error
                self.state[f"{number}/{side}/values"].copy_(values.clamp_(min=0))
                self.state[f"{number}/{side}/vectors"].copy_(vectors)

    def part(self, flat: Tensor, region: int) -> Tensor:
        """Return the part of a flat tensor that belongs to a region.

        Args:
            flat: [P], such as the flat parameters.
            region: its number, in the order of `regions`.

        Returns:
            A view [Q] of the Q numbers of the region.
        """
        return flat[self.spans[region][0]]

    def widen(self, region: int, factor: Tensor) -> None:
        """Set the factor that multiplies a region's radius in later steps, such as the variance of the region's output.

        Args:
            region: its number, in the order of `regions`.
            factor: [], the new factor.
        """
        self.state["width"][region] = factor

    def rescale(self, last: nn.Module, factor: Tensor | float) -> None:
        """Adapt the state to a new scale of a region's outputs, after the weights of its last layer were multiplied.

        This changes the velocity of that layer, and the moments of the gradients at all earlier layers of the region.

        Args:
            last: the last layer.
            factor: [1] or a number; the weights were multiplied by it.
        """
        parameters = set(map(id, last.parameters()))
        velocity = self.state["velocity"]
        (last_layer,) = [layer for layer in self.layers if id(layer.weight) in parameters]
        last_layer.write(velocity, last_layer.matrix(velocity) * factor)
        (span,) = [span for span, _ in self.spans if span.start <= last_layer.offset < span.stop]
        for number, layer in enumerate(self.layers):
            if span.start <= layer.offset < span.stop and layer is not last_layer:
                for name in ("outputs", "outputs/values"):
                    self.state[f"{number}/{name}"] *= factor**2

    def natural(self, gradient: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Multiply a gradient by the inverse of the damped Fisher matrix.

        Args:
            gradient: [P], flat.
            state: the state of the rule, with the eigenvalues and eigenvectors of the moments.

        Returns:
            The natural gradient [P].
        """
        natural = gradient / (1 + self.damping)
        for number, layer in enumerate(self.layers):
            inputs = state[f"{number}/inputs/vectors"]
            outputs = state[f"{number}/outputs/vectors"]
            values = torch.outer(
                state[f"{number}/outputs/values"], state[f"{number}/inputs/values"]
            )
            scaled = outputs.T @ layer.matrix(gradient) @ inputs / (values + self.damping)
            layer.write(natural, outputs @ scaled @ inputs.T)
        return natural

    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float,
    ) -> None:
        natural = self.natural(gradient, state)
        for width, (span, radius) in zip(state["width"], self.spans, strict=True):
            if radius is not None:
                divergence = 0.5 * lr**2 * (natural[span] @ gradient[span]).clamp(min=TINY)
                natural[span] *= (radius * width / divergence).sqrt().clamp(max=1)
        state["velocity"].lerp_(natural, 1 - self.momentum)
        parameters.sub_(state["velocity"], alpha=lr)


def _layers(
    modules: Iterable[nn.Module],
    offsets: dict[int, int],
) -> list[Layer]:
    """Return the trained linear and convolutional layers, without convolutions that `unfold` cannot compute."""
    trained = [
        module
        for module in modules
        if isinstance(module, nn.Linear)
        or (
            isinstance(module, nn.Conv2d)
            and module.groups == 1
            and not isinstance(module.padding, str)
        )
        if id(module.weight) in offsets
    ]
    return [
        Layer(
            layer.weight,
            offsets[id(layer.weight)],
            len(layer.weight),
            layer.weight[0].numel(),
            id(layer.bias) in offsets,
        )
        for layer in trained
    ]

"""Natural gradient steps within a trust region: Fisher-vector products, conjugate gradient, a line search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

import torch
from torch import Tensor, nn

from rlplug_core.errors import NonFinite
from rlplug_core.learning.optimizer import flatten, to_float

#: The smallest divisor.
TINY = 1e-12
#: Computes a scalar at the current parameters.
Scalar: TypeAlias = Callable[[], Tensor]


@dataclass(frozen=True)
class Move:
    """The result of a step: the loss before it, its KL divergence, and how many steps of the line search failed."""

    loss: Tensor
    divergence: Tensor
    failed: int


class TrustRegion:
    """Minimizes losses; no step moves the distribution of `module` further than a radius.

    This is the step of TRPO (Schulman et al., 2015, arXiv:1502.05477, section 6 and appendix C). The parameters, which
    are already on their device, become views of one flat tensor and change in place, so a learner that uses this lists
    only the runner `sync`.

    Args:
        module: a module; its trained parameters change.
        directions: steps of the conjugate gradient method.
        tries: largest number of steps of the line search; each reads one number from the device.
        shrink: each step of the line search has this share of the length of the one before.
    """

    def __init__(
        self,
        module: nn.Module,
        directions: int = 10,
        tries: int = 10,
        shrink: float = 0.8,
    ) -> None:
        self.parameters = [
            parameter for parameter in module.parameters() if parameter.requires_grad
        ]
        self.flat, _ = flatten(self.parameters)
        self.directions = directions
        self.tries = tries
        self.shrink = shrink

    def step(
        self,
        loss: Scalar,
        divergence: Scalar,
        *,
        radius: float,
        damping: float = 0.1,
        curvature: Scalar | None = None,
    ) -> Move:
        """Take the longest step along the natural gradient that lowers the loss and stays within the radius.

        Args:
            loss: the scalar to minimize, at the current parameters.
            divergence: the mean KL divergence [] from the distribution before the step; its Hessian is the Fisher
                matrix.
            radius: the largest divergence of the step.
            damping: added to the diagonal of the Fisher matrix.
            curvature: a faster estimate of the divergence, for products with the Fisher matrix; None: the divergence
                itself.

        Raises:
            NonFinite: the loss, its gradient or a Fisher product is not finite; no parameter has changed.
        """
        old_loss = loss()
        gradient = self.gradient(old_loss)
        product = self.fisher(curvature or divergence, damping)
        direction = conjugate_gradient(product, -gradient, self.directions)
        length = (2 * radius / (direction @ product(direction)).clamp(min=TINY)).sqrt()
        full_step = length * direction
        start = self.flat.clone()
        old_loss = old_loss.detach()
        if not isfinite(to_float(torch.linalg.vector_norm(full_step) + old_loss)):
            raise NonFinite(
                f"the policy's trust region met the loss {to_float(old_loss):g} or curvature that is not finite"
            )
        for failed in range(self.tries):
            self.flat.copy_(start + self.shrink**failed * full_step)
            with torch.no_grad():
                distance = divergence()
                accepted = (loss() < old_loss) & (distance <= radius)
            if to_float(accepted):
                return Move(old_loss, distance, failed)
        self.flat.copy_(start)
        return Move(old_loss, torch.zeros_like(old_loss), self.tries)

    def fisher(
        self,
        divergence: Scalar,
        damping: float,
    ) -> Callable[[Tensor], Tensor]:
        """Return the function v -> F v for the damped Fisher matrix F at the current parameters.

        F v is computed as the gradient of the product of v and the divergence's gradient.
        """
        gradient = self.gradient(divergence(), create_graph=True)

        def product(vector: Tensor) -> Tensor:
            return self.gradient(gradient @ vector, retain_graph=True) + damping * vector

        return product

    def gradient(
        self,
        value: Tensor,
        create_graph: bool = False,
        retain_graph: bool | None = None,
    ) -> Tensor:
        """Compute a gradient in the order of the flat parameters.

        Args:
            value: [], a scalar with a graph.
            create_graph, retain_graph: as of `torch.autograd.grad`.

        Returns:
            The gradient [P].
        """
        gradients = torch.autograd.grad(
            value,
            self.parameters,
            create_graph=create_graph,
            retain_graph=retain_graph,
            materialize_grads=True,
        )
        return torch.cat([gradient.reshape(-1) for gradient in gradients])


def conjugate_gradient(
    product: Callable[[Tensor], Tensor],
    target: Tensor,
    steps: int,
) -> Tensor:
    """Return x with product(x) close to `target`, after `steps` steps (Hestenes and Stiefel, 1952).

    `product` multiplies by a symmetric positive definite matrix. The number of steps is fixed, so no step waits for the
    device; after the residual is 0, steps change nothing.
    """
    solution = torch.zeros_like(target)
    residual = target.clone()
    direction = residual.clone()
    square = residual @ residual
    for _ in range(steps):
        image = product(direction)
        length = square / (direction @ image).clamp(min=TINY)
        solution += length * direction
        residual -= length * image
        square, last_square = residual @ residual, square
        direction = residual + square / last_square.clamp(min=TINY) * direction
    return solution


def inside_trust_region(
    gradient: Tensor,
    kl_gradient: Tensor,
    bound: float,
) -> Tensor:
    """Return the vectors nearest to `gradient` that have a dot product of at most `bound` with `kl_gradient`.

    With the gradient of a KL divergence with respect to the parameters of a distribution, this is ACER's trust region
    (Wang et al., 2017, arXiv:1611.01224, eq. 12).

    Args:
        gradient, kl_gradient: [B, k].
        bound: the largest product of a vector with `kl_gradient`.

    Returns:
        Vectors [B, k].
    """
    excess = (gradient * kl_gradient).sum(-1, keepdim=True) - bound
    square = kl_gradient.square().sum(-1, keepdim=True).clamp(min=TINY)
    return gradient - excess.clamp(min=0) / square * kl_gradient

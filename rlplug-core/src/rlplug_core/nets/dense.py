"""The dense layer: one function, which the fast room may replace by a faster product."""

from __future__ import annotations

from torch import Tensor, nn

from rlplug_core.accelerator import kernel


@kernel
def linear(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute y = x Wᵀ + b.

    Args:
        features: [..., inputs].
        weight: [outputs, inputs].
        bias: [outputs], or None.

    Returns:
        Outputs [..., outputs].
    """
    return nn.functional.linear(features, weight, bias)

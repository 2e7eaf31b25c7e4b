"""Closed-form gradients of diagonal Gaussians in their mean and log deviation [B, 2 d]."""

from __future__ import annotations

import torch
from torch import Tensor


def gaussian_score(outputs: Tensor, action: Tensor) -> Tensor:
    """Compute the gradient of a Gaussian's log-probability in its mean and log deviation.

    Args:
        outputs: [B, 2 d] means, then log standard deviations.
        action: [B, d].

    Returns:
        Gradients [B, 2 d].
    """
    mean, log_std = outputs.chunk(2, -1)
    scaled = (action - mean) * (-log_std).exp()
    return torch.cat([scaled * (-log_std).exp(), scaled.square() - 1], -1)


def gaussian_kl_slope(average: Tensor, outputs: Tensor) -> Tensor:
    """Compute the gradient of KL(average || outputs), both diagonal Gaussians, in `outputs`.

    Args:
        average, outputs: [B, 2 d] means, then log standard deviations.

    Returns:
        Gradients [B, 2 d].
    """
    (mean, log_std), (average_mean, average_log_std) = outputs.chunk(2, -1), average.chunk(2, -1)
    precision = (-2 * log_std).exp()
    apart = mean - average_mean
    return torch.cat(
        [apart * precision, 1 - ((2 * average_log_std).exp() + apart.square()) * precision], -1
    )

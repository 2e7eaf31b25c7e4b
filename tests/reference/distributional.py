"""Losses on distributions of returns by their definitions, with loops over numbers: slow, but obviously correct."""

from __future__ import annotations

from collections.abc import Sequence


def projection(probability: Sequence[float], reward: float, discount: float, support: Sequence[float]) -> list[float]:
    """Algorithm 1 of Bellemare et al. (2017): an atom's probability is split between the atoms around its target."""
    projected = [0.0] * len(support)
    for mass, atom in zip(probability, support, strict=True):
        place = min(max(reward + discount * atom, support[0]), support[-1])
        for lower in range(len(support) - 1):
            if support[lower] <= place <= support[lower + 1]:
                upwards = (place - support[lower]) / (support[lower + 1] - support[lower])
                projected[lower] += mass * (1 - upwards)
                projected[lower + 1] += mass * upwards
                break
    return projected


def quantile_huber(
    quantiles: Sequence[float], shares: Sequence[float], targets: Sequence[float], kappa: float
) -> float:
    """Equation 10 of Dabney et al. (2018, arXiv:1710.10044), divided by kappa as in equation 3 of arXiv:1806.06923."""
    total = 0.0
    for quantile, share in zip(quantiles, shares, strict=True):
        for target in targets:
            error = target - quantile
            huber = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
            total += abs(share - (error < 0)) * huber / kappa / len(targets)
    return total


def quantile_gradients(
    quantiles: Sequence[float], shares: Sequence[float], targets: Sequence[float], kappa: float
) -> list[float]:
    """The gradient of the loss for each quantile: the errors, clipped at kappa."""
    gradients = []
    for quantile, share in zip(quantiles, shares, strict=True):
        errors = [target - quantile for target in targets]
        pulls = [abs(share - (error < 0)) * min(max(error, -kappa), kappa) for error in errors]
        gradients.append(-sum(pulls) / kappa / len(targets))
    return gradients

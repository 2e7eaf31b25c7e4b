"""Losses of values and of distributions of returns, and gradients of Gaussians, as pure functions of B rows."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from rlplug_core.accelerator import kernel, overridable
from rlplug_core.batches import Transitions
from rlplug_core.nets.categorical_critics import CategoricalCritics
from rlplug_core.nets.continuous import ActionCritics

#: The loss of an error e. The Huber loss is e² / 2 for |e| up to 1 and |e| - 1/2 beyond; the squared error is e².
Regression: TypeAlias = Literal["huber", "mse"]
#: The smallest kappa of a quantile loss, which is divided by it.
SMALLEST_KAPPA = 1e-6


@overridable
def regression(value: Tensor, target: Tensor, kind: Regression) -> Tensor:
    """Compute the loss of each value, given its target.

    Args:
        value: [B].
        target: [B].
        kind: Huber's loss or the squared error.

    Returns:
        Losses [B], with a gradient in `value`.
    """
    loss = nn.functional.smooth_l1_loss if kind == "huber" else nn.functional.mse_loss
    return loss(value, target, reduction="none")


def rescaled(value: Tensor, slope: float = 1e-3) -> Tensor:
    """Compute h(x) = sgn(x) (√(|x| + 1) - 1) + slope x (Pohlen et al., 2018, arXiv:1805.11593, proposition A.2).

    h of values has a similar size for rewards of any size; `unscaled` is its inverse.

    Args:
        value: [...].
        slope: weight of the linear term.

    Returns:
        [...], of the same type.
    """
    return value.sign() * ((value.abs() + 1).sqrt() - 1) + slope * value


def unscaled(value: Tensor, slope: float = 1e-3) -> Tensor:
    """Compute the inverse of `rescaled`; intermediate numbers have double precision.

    Args:
        value: [...].
        slope: as in `rescaled`.

    Returns:
        [...], of the same type.
    """
    size = value.double().abs()
    root = ((1 + 4 * slope * (size + 1 + slope)).sqrt() - 1) / (2 * slope)
    return value.sign() * (root.square() - 1).to(value.dtype)


def sequence_priority(error: Tensor, weight: Tensor, eta: float) -> Tensor:
    """Compute eta max |error| + (1 - eta) mean |error| of each sequence (Kapturowski et al., 2019, section 2.3).

    Args:
        error: [T, B] TD errors.
        weight: [T, B]; steps of weight 0 do not count.
        eta: share of the largest error.

    Returns:
        Priorities [B]; 0 if no step counts.
    """
    counts = weight > 0
    size = error.abs() * counts
    return eta * size.amax(0) + (1 - eta) * size.sum(0) / counts.sum(0).clamp(min=1)


def replay_priority(
    batch: Transitions,
    error: Tensor,
    eta: float = 0.9,
) -> Tensor:
    """Return the priorities of a batch: the errors of transitions, or one of all errors of each sequence.

    Args:
        batch: B transitions, or B sequences of T steps.
        error: [B] TD errors, or [T * B].
        eta: share of the largest error of a sequence.

    Returns:
        Priorities [B].
    """
    if len(batch.index) == len(batch.weight):
        return error
    shape = (-1, len(batch.index))
    return sequence_priority(error.view(shape), batch.weight.view(shape), eta)


@overridable
def expectile_loss(value: Tensor, target: Tensor, expectile: float) -> Tensor:
    """Compute |expectile - 1{u < 0}| u² for u = target - value (Kostrikov et al., 2021, arXiv:2110.06169, eq. 5).

    The value that minimizes its mean is this expectile of the targets: their mean for 0.5, almost their maximum near 1.

    Args:
        value: [B].
        target: [B].
        expectile: in (0, 1]; with 1, only values below their target have a loss.

    Returns:
        Losses [B], with a gradient in `value`.
    """
    error = target - value
    return torch.where(error < 0, 1 - expectile, expectile) * error.square()


def advantage_weight(advantage: Tensor, beta: float, largest: float) -> Tensor:
    """Compute exp(beta * advantage), at most `largest` (Kostrikov et al., 2021, arXiv:2110.06169, eq. 7).

    Args:
        advantage: [B] of actions, constants.
        beta: preference for actions with a large advantage; 0 gives all actions the same weight.
        largest: the largest weight; it also keeps the exponential from overflowing.

    Returns:
        Weights [B].
    """
    # A schedule of `largest` may end at 0.
    log_largest = math.log(largest) if largest else -math.inf
    return (beta * advantage.detach()).clamp(max=log_largest).exp()


@overridable
def categorical_projection(
    probability: Tensor,
    reward: Tensor,
    discount: Tensor,
    support: Tensor,
) -> Tensor:
    """Project reward + discount * Z onto the atoms of Z (Bellemare et al., 2017, arXiv:1707.06887, eq. 7).

    Each probability is split between the two atoms next to its new position; beyond the ends it goes to the outer
    atom.

    Args:
        probability: [B, n] of Z.
        reward, discount: [B].
        support: [n] atoms, equally spaced, at least two.

    Returns:
        Probabilities [B, n].
    """
    last = len(support) - 1
    moved_atoms = reward.unsqueeze(1) + discount.unsqueeze(1) * support
    # Positions in units of the spacing of atoms.
    position = ((moved_atoms - support[0]) * (last / (support[-1] - support[0]))).clamp(0, last)
    # With discount 0 all atoms move to one position, so every distribution gives the same result, up to the rounding of
    # its sum. One atom with probability 1 has no rounding.
    first = (torch.arange(last + 1, device=support.device) == 0).to(support.dtype)
    source = torch.where(discount.unsqueeze(1) == 0, first, probability)
    return split_between_neighbors(source, position)


@kernel
def split_between_neighbors(mass: Tensor, position: Tensor) -> Tensor:
    """Split masses [B, n] between the atoms next to their positions [B, n], numbers from 0 to n - 1.

    Each atom's share is the height of a triangle around it. These heights sum to 1 everywhere, so no mass is lost. All
    pairs are computed: sums by index have no fixed order on a GPU, so a run would not resume exactly.
    """
    atoms = torch.arange(mass.shape[1], device=mass.device, dtype=mass.dtype)
    shares = (1 - (position.unsqueeze(1) - atoms.unsqueeze(1)).abs()).clamp(min=0)
    return (shares @ mass.unsqueeze(2)).squeeze(2)


def cross_entropy(log_probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the cross-entropy of distributions to their targets, and the divergence KL(target || distribution).

    Args:
        log_probs: [B, n] in nats.
        target: [B, n] probabilities, constants.

    Returns:
        -sum target log p [B] with a gradient in `log_probs`, and the KL divergence [B], at least 0, without a
        gradient.
    """
    loss = -(target * log_probs).sum(1)
    return loss, (loss.detach() + target.xlogy(target).sum(1)).clamp(min=0)


@overridable
def quantile_huber(
    quantiles: Tensor,
    shares: Tensor,
    targets: Tensor,
    kappa: float = 1.0,
) -> Tensor:
    """Compute the quantile Huber loss (Dabney et al., 2018, arXiv:1710.10044, eq. 10; arXiv:1806.06923, eq. 3).

    Args:
        quantiles: [B, N] estimated.
        shares: [N] or [B, N] levels of the quantiles, in [0, 1].
        targets: [B, M] samples of the target, constants.
        kappa: the loss is quadratic up to this error and linear beyond; 0, the end of some schedules, makes it linear.

    Returns:
        [B] sum over i of the mean over j of |share_i - 1{u_ij < 0}| Huber(u_ij) / kappa, u_ij = target_j - quantile_i.
    """
    with torch.no_grad():
        loss, derivative = loss_and_derivative(quantiles.detach(), shares, targets, kappa)
    # The added term is 0, and its gradient is `derivative`.
    return loss + (derivative * (quantiles - quantiles.detach())).sum(1)


@kernel
def loss_and_derivative(
    quantiles: Tensor,
    shares: Tensor,
    targets: Tensor,
    kappa: float,
) -> tuple[Tensor, Tensor]:
    """Return the loss [B] and its gradient in the quantiles [B, N], both with the type of the quantiles."""
    kappa = max(kappa, SMALLEST_KAPPA)
    loss, derivative = _quantile_huber(quantiles.double(), shares, targets.double(), kappa)
    return loss.to(quantiles.dtype), derivative.to(quantiles.dtype)


def _quantile_huber(
    quantiles: Tensor,
    shares: Tensor,
    targets: Tensor,
    kappa: float,
) -> tuple[Tensor, Tensor]:
    """Return the loss [B] and its gradient in the quantiles [B, N], without computing all N * M pairs.

    A quantile divides the sorted targets into four groups: far below, just below, just above, far above. All pairs of a
    group follow one formula in u, so the size, sum and sum of squares of the group are enough. The computation is
    in double precision, because it subtracts sums of squares.
    """
    ordered = targets.sort(1).values
    count = quantiles.shape[1]
    total = ordered.shape[1]
    borders = torch.stack([quantiles - kappa, quantiles, quantiles + kappa], 2).flatten(1)
    ends = torch.searchsorted(ordered, borders).unflatten(1, (count, 3))
    ends = nn.functional.pad(nn.functional.pad(ends, (1, 0)), (0, 1), value=total)
    sums, squares = (
        nn.functional.pad(terms.cumsum(1), (1, 0))
        .gather(1, ends.flatten(1))
        .unflatten(1, (count, 5))
        .diff()
        for terms in (ordered, ordered.square())
    )
    size = ends.diff()
    quantile = quantiles.unsqueeze(2)
    error = sums - quantile * size  # the sum of u in each group
    square = squares - 2 * quantile * sums + quantile.square() * size  # the sum of u²
    far_below, _, _, far_above = size.unbind(2)
    below = kappa * (-error[..., 0] - 0.5 * kappa * far_below) + 0.5 * square[..., 1]
    above = kappa * (error[..., 3] - 0.5 * kappa * far_above) + 0.5 * square[..., 2]
    loss = ((1 - shares) * below + shares * above).sum(1)
    derivative = (1 - shares) * (kappa * far_below - error[..., 1]) - shares * (
        kappa * far_above + error[..., 2]
    )
    return loss / (kappa * total), derivative / (kappa * total)


def log_softmax(outputs: Tensor) -> Tensor:
    """Compute log-probabilities along the last axis.

    Args:
        outputs: [..., n].

    Returns:
        [..., n] in nats.
    """
    return outputs.log_softmax(-1)


def gaussian_score(outputs: Tensor, action: Tensor) -> Tensor:
    """Compute the gradient of a Gaussian's log-probability with respect to its mean and log deviation.

    Args:
        outputs: [B, 2 d] means, then log standard deviations.
        action: [B, d].

    Returns:
        Gradients [B, 2 d].
    """
    mean, log_std = outputs.chunk(2, -1)
    scaled = (action - mean) * (-log_std).exp()
    return torch.cat([scaled * (-log_std).exp(), scaled.square() - 1], -1)


def gaussian_kl_gradient(average: Tensor, outputs: Tensor) -> Tensor:
    """Compute the gradient of KL(average || outputs), of diagonal Gaussians, with respect to `outputs`.

    Args:
        average, outputs: [B, 2 d] means, then log standard deviations.

    Returns:
        Gradients [B, 2 d].
    """
    mean, log_std = outputs.chunk(2, -1)
    average_mean, average_log_std = average.chunk(2, -1)
    precision = (-2 * log_std).exp()
    difference = mean - average_mean
    return torch.cat(
        [
            difference * precision,
            1 - ((2 * average_log_std).exp() + difference.square()) * precision,
        ],
        -1,
    )


def categorical_critic_loss(
    critics: CategoricalCritics,
    target_critics: ActionCritics,
    batch: Transitions,
    next_action: Tensor,
    reward: Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the cross-entropy of every critic to one target: reward + discount * Z_target(s', a') on the atoms.

    Z_target is the distribution with the lowest mean (Seo et al., 2025, arXiv:2505.22642; projection: Bellemare et
    al., 2017, arXiv:1707.06887, algorithm 1).

    Args:
        critics, target_critics: the critics and their target networks.
        batch: B transitions.
        next_action: [B, ...] actions a' in the next states.
        reward: [B] n-step sums of rewards, with an entropy bonus if the algorithm has one.

    Returns:
        The loss, summed over critics, and metrics.
    """
    with torch.no_grad():
        assert isinstance(target_critics, CategoricalCritics)
        next_obs = target_critics.next_obs(batch)
        probability = target_critics.lowest_distribution(next_obs, next_action)
        target = categorical_projection(probability, reward, batch.discount, critics.support)
    logits = critics(critics.obs(batch), batch.action)
    loss = batch.mean(-(target * logits.log_softmax(-1)).sum(-1).sum(0))
    q = critics.means(logits.detach()).mean(0)
    return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q)}

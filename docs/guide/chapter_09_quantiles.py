# %% [markdown]
# # 9. Quantiles instead of atoms
#
# C51 needs the smallest and the largest return, and cannot represent returns outside this range. Quantile regression
# (Dabney et al., 2018, arXiv:1710.10044) learns returns θ₁ … θ_N at fixed probabilities, instead of probabilities of
# fixed returns. The return is below θᵢ with probability τᵢ = (i - ½) / N, the *quantile fraction*. θᵢ can be any
# number, so there are no bounds and no projection.
#
# Which loss has a quantile as its minimum? A loss with different weights for values that are too high and too low. With
# u = target - θ, the mean of |τ - 1[u < 0]| · |u| is minimal if a fraction τ of the targets is below θ. A Huber
# function instead of |u| makes it smooth around 0:
#
#     L = Σᵢ meanⱼ |τᵢ - 1[uᵢⱼ < 0]| huber(uᵢⱼ) / κ      with uᵢⱼ = r + γ θⱼ_target(s', a') - θᵢ(s, a)

# %%
from __future__ import annotations

from dataclasses import dataclass

import torch
from chapter_06_n_step import NStepConfig
from chapter_07_distributional import Distributional
from torch import Tensor

import rlplug_core as rl
from rlplug_core.nets.distributional import middles

# %% [markdown]
# We start from the class `Distributional` of chapter 7 and use quantiles instead of C51. The value is the mean of
# equally likely quantiles. The priority is again the error of the mean.


# %%
@dataclass(frozen=True)
class QuantileConfig(NStepConfig):
    n_quantiles: rl.Count = 10  # number of quantiles


class QuantileRainbow(Distributional):
    """Rainbow with quantiles at fixed fractions instead of atoms."""

    Config = QuantileConfig
    config: QuantileConfig

    def network(self) -> rl.QNetwork:
        c = self.config
        return rl.QuantileQ(self.spec, c.net, dueling=True, noisy="factorized", atoms=c.n_quantiles)

    def fractions(self, batch: rl.Transitions) -> Tensor:
        """Return the quantile fractions τ of the predictions, [N] or [B, N]."""
        return middles(self.config.n_quantiles).to(self.device)

    def losses(self, batch: rl.Transitions) -> tuple[Tensor, Tensor]:
        quantiles = self.current_values(batch)
        target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * self.next_values(batch)
        error = (target.mean(1) - quantiles.detach().mean(1)).abs()
        return rl.quantile_huber(quantiles, self.fractions(batch), target), error


# %% [markdown]
# ## Check by hand
#
# A slow version computes the loss pair by pair. Gradient descent on this loss finds a quantile of the targets.


# %%
def slow(quantiles: Tensor, fractions: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of one transition, with κ = 1."""
    total = torch.zeros(())
    for fraction, quantile in zip(fractions, quantiles, strict=True):
        for target in targets:
            u = target - quantile
            huber = 0.5 * u**2 if u.abs() <= 1 else u.abs() - 0.5
            total = total + (fraction - (u < 0).float()).abs() * huber / len(targets)
    return total


def by_hand() -> None:
    torch.manual_seed(0)
    quantiles = torch.randn(1, 5)
    targets = 2 * torch.randn(1, 7)
    fractions = middles(5)
    fast = rl.quantile_huber(quantiles, fractions, targets)[0]
    print(f"fast {fast:.4f}, slow {slow(quantiles[0], fractions, targets[0]):.4f}")
    assert torch.isclose(fast, slow(quantiles[0], fractions, targets[0]), atol=1e-5)
    theta = torch.full((1, 3), 50.0, requires_grad=True)
    returns = torch.arange(101.0).unsqueeze(0)  # uniform from 0 to 100
    for _ in range(2_000):
        loss = rl.quantile_huber(theta, torch.tensor([0.1, 0.5, 0.9]), returns).sum()
        (gradient,) = torch.autograd.grad(loss, theta)
        theta = (theta - gradient).detach().requires_grad_()
    print("quantiles at 0.1, 0.5 and 0.9:", [round(number, 1) for number in theta[0].tolist()])
    assert torch.allclose(theta, torch.tensor([[10.0, 50.0, 90.0]]), atol=1.0)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged `qrdqn` with all variants on equals this learner, bit for bit. Without options, `qrdqn` has only
# quantiles, 200 of them as in the paper, for larger problems than CartPole.
#
# `rlplug run qrdqn CartPole-v1 --n-quantiles 10 --double --priority.alpha 0.5 --dueling --noisy factorized --n-step 3`

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_09_quantiles:QuantileRainbow")

# %% [markdown]
# # 9. Quantiles in place of atoms
#
# C51 must be told the smallest and the largest return, and whatever lies beyond cannot be told apart. Quantile
# regression (Dabney et al., 2018, arXiv:1710.10044) turns the picture round: not probabilities of fixed returns, but
# returns θ₁ … θ_N at fixed probabilities. θᵢ is the return that is not reached in a share τᵢ = (i - ½) / N of the
# cases. It can be any number, so there are no bounds, and nothing has to be projected.
#
# Which loss has a quantile as its minimum? One that punishes being too high and being too low differently. With
# u = target - θ, a share τ of the targets lies below θ just where the mean of |τ - 1[u < 0]| · |u| is least. A Huber
# function in place of |u| makes it smooth around 0:
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
# We go back to what chapter 7 has in front of C51, and put quantiles where C51 was. The mean of equally likely
# quantiles is the value. A priority is again the error of the mean.


# %%
@dataclass(frozen=True)
class QuantileConfig(NStepConfig):
    n_quantiles: rl.Count = 10  # of the distribution of returns


class QuantileRainbow(Distributional):
    """Rainbow on quantiles at fixed shares in place of atoms."""

    Config = QuantileConfig
    config: QuantileConfig

    def network(self) -> rl.QNetwork:
        c = self.config
        return rl.QuantileQ(self.spec, c.net, dueling=True, noisy="factorized", atoms=c.n_quantiles)

    def shares(self, batch: rl.Transitions) -> Tensor:
        """The shares τ at which the network is asked, [N] or [B, N]."""
        return middles(self.config.n_quantiles).to(self.device)

    def losses(self, batch: rl.Transitions) -> tuple[Tensor, Tensor]:
        quantiles = self.taken(batch)
        target = batch.reward.unsqueeze(1) + batch.discount.unsqueeze(1) * self.following(batch)
        error = (target.mean(1) - quantiles.detach().mean(1)).abs()
        return rl.quantile_huber(quantiles, self.shares(batch), target), error


# %% [markdown]
# ## By hand
#
# The loss the slow way, pair by pair; and what gradient descent on it finds: a quantile of the targets.


# %%
def slow(quantiles: Tensor, shares: Tensor, targets: Tensor) -> Tensor:
    """For one transition, with κ = 1."""
    total = torch.zeros(())
    for share, quantile in zip(shares, quantiles, strict=True):
        for target in targets:
            u = target - quantile
            huber = 0.5 * u**2 if u.abs() <= 1 else u.abs() - 0.5
            total = total + (share - (u < 0).float()).abs() * huber / len(targets)
    return total


def by_hand() -> None:
    torch.manual_seed(0)
    quantiles = torch.randn(1, 5)
    targets = 2 * torch.randn(1, 7)
    shares = middles(5)
    fast = rl.quantile_huber(quantiles, shares, targets)[0]
    print(f"fast {fast:.4f}, slow {slow(quantiles[0], shares, targets[0]):.4f}")
    assert torch.isclose(fast, slow(quantiles[0], shares, targets[0]), atol=1e-5)
    found = torch.full((1, 3), 50.0, requires_grad=True)
    returns = torch.arange(101.0).unsqueeze(0)  # each from 0 to 100 as likely
    for _ in range(2_000):
        loss = rl.quantile_huber(found, torch.tensor([0.1, 0.5, 0.9]), returns).sum()
        (slope,) = torch.autograd.grad(loss, found)
        found = (found - slope).detach().requires_grad_()
    print("quantiles at 0.1, 0.5 and 0.9:", [round(number, 1) for number in found[0].tolist()])
    assert torch.allclose(found, torch.tensor([[10.0, 50.0, 90.0]]), atol=1.0)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged `qrdqn` with every switch on is this learner, bit for bit; `qrdqn` as it is has quantiles alone. Its
# default is the paper's 200 of them, for larger problems than this.
#
# `rlplug run qrdqn CartPole-v1 --n-quantiles 10 --double --priority.alpha 0.5 --dueling --noisy factorized --n-step 3`

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_09_quantiles:QuantileRainbow")

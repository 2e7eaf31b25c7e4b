# %% [markdown]
# # 10. Rainbow-IQN
#
# Ten quantiles are ten points of a curve, the *quantile function*: it gives the return for every quantile fraction τ
# between 0 and 1. An implicit quantile network (Dabney et al., 2018, arXiv:1806.06923) learns the curve itself. τ is an
# input, so the network can predict any quantile. A cosine embedding of τ (eq. 4) is multiplied with the features ψ of
# the observation:
#
#     Z(s, a; τ) = f( ψ(s) ⊙ φ(τ) )_a        with φ(τ) = relu( Σᵢ cos(π i τ) wᵢ + b )
#
# For each transition, the learner draws random fractions τᵢ for the prediction and τⱼ' for the target network:
#
#     L = Σᵢ meanⱼ |τᵢ - 1[uᵢⱼ < 0]| huber(uᵢⱼ) / κ      with uᵢⱼ = r + γ Z_target(s', a'; τⱼ') - Z(s, a; τᵢ)
#
# The number of quantiles no longer depends on the size of a layer, and every batch trains other points of the curve.

# %%
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from chapter_01_dqn import gather_actions
from chapter_05_noisy import ONLINE, TARGET
from chapter_09_quantiles import QuantileConfig, QuantileRainbow
from gymnasium.spaces import Box, Discrete
from torch import Tensor

import rlplug_core as rl

# %% [markdown]
# Compared with chapter 9, the learner draws the fractions together with the noise of chapter 5 and passes them to the
# network. To act and to choose the next action, the network uses the mean of 8 evenly spaced quantiles.


# %%
@dataclass(frozen=True)
class ImplicitConfig(QuantileConfig):
    n_quantiles: rl.Count = 8  # random quantiles of each prediction (N)
    n_target_quantiles: rl.Count = 8  # random quantiles of each target (N')
    n_acting_quantiles: rl.Count = 8  # quantiles in the mean that is an action's value (K)


class RainbowIQN(QuantileRainbow):
    """Rainbow with the whole quantile function."""

    Config = ImplicitConfig
    config: ImplicitConfig
    q_network: rl.ImplicitQ
    target_network: rl.ImplicitQ

    def network(self) -> rl.ImplicitQ:
        c = self.config
        return rl.ImplicitQ(
            self.spec, c.net, c.n_acting_quantiles, dueling=True, noisy="factorized"
        )

    def draws(self, batch: rl.Transitions) -> dict[str, Tensor]:
        c = self.config
        noise = super().draws(batch)
        uniform = self.generator.random(
            (len(batch.weight), c.n_quantiles + c.n_target_quantiles), dtype=np.float32
        )
        fractions = torch.from_numpy(uniform).to(self.device)
        return noise | {
            "fractions": fractions[:, : c.n_quantiles],
            "target_fractions": fractions[:, c.n_quantiles :],
        }

    def fractions(self, batch: rl.Transitions) -> Tensor:
        return batch.extras["fractions"]

    def current_values(self, batch: rl.Transitions) -> Tensor:
        """Return Z(s, a; τ) [B, N]."""
        noise = batch.extras["noise"][ONLINE]
        return gather_actions(
            self.q_network.distribution(batch.obs, noise, batch.extras["fractions"]), batch.action
        )

    def target_values(self, batch: rl.Transitions) -> Tensor:
        """Return Z_target(s', ·; τ') [B, A, N']."""
        return self.target_network.distribution(
            batch.next_obs, batch.extras["noise"][TARGET], batch.extras["target_fractions"]
        )


# %% [markdown]
# ## Check by hand
#
# We compute the embedding of one fraction with its equation.


# %%
def by_hand() -> None:
    spec = rl.Spec(Box(-1, 1, (4,)), Discrete(3), 1, "by hand")
    network = rl.ImplicitQ(spec, rl.Net(hidden=(8, 8)))
    obs = torch.randn(1, 4)
    fraction = 0.3
    cosines = torch.tensor([np.cos(np.pi * i * fraction) for i in range(64)], dtype=torch.float32)
    embedded = (network.embedding.weight @ cosines + network.embedding.bias).relu()
    z = network.heads(network.encoder(obs) * embedded).squeeze(-1)
    predicted = network.distribution(obs, shares=torch.tensor([[fraction]])).squeeze(-1)
    print("Z at the fraction 0.3:", [round(number, 3) for number in z[0].tolist()])
    assert torch.allclose(z, predicted, atol=1e-5)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged `rainbow-iqn` with the settings of this guide equals this learner, bit for bit. Its own preset for
# CartPole has smaller layers, and epsilon instead of noise, because noise may choose one action for whole episodes.
#
#     rlplug run rainbow-iqn CartPole-v1 --random-steps 0 --noisy factorized --learning-rate 2.3e-3 --net.hidden 256,256
#
# You have now seen all of its ideas, one in each chapter.
#
# Next, write a chapter 11. [The tutorial](../plugins/tutorial.md) turns a file like this one into a package.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_10_rainbow_iqn:RainbowIQN")

# %% [markdown]
# # 10. Rainbow-IQN
#
# Ten quantiles are ten points of a curve: the *quantile function*, which gives the return for every share τ between 0
# and 1. An implicit quantile network (Dabney et al., 2018, arXiv:1806.06923) learns the curve itself. τ is an input, so
# that one network can be asked for any quantile. It is embedded by cosines (eq. 4) and multiplies the features ψ of the
# observation:
#
#     Z(s, a; τ) = f( ψ(s) ⊙ φ(τ) )_a        with φ(τ) = relu( Σᵢ cos(π i τ) wᵢ + b )
#
# For each transition some shares τᵢ are drawn to learn at, and others τⱼ' to ask the target network at:
#
#     L = Σᵢ meanⱼ |τᵢ - 1[uᵢⱼ < 0]| huber(uᵢⱼ) / κ      with uᵢⱼ = r + γ Z_target(s', a'; τⱼ') - Z(s, a; τᵢ)
#
# How finely the distribution is learned no longer depends on the size of a layer, and the parts of the curve that are
# asked for are always others.

# %%
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from chapter_01_dqn import chosen
from chapter_05_noisy import AHEAD, TAKEN
from chapter_09_quantiles import QuantileConfig, QuantileRainbow
from gymnasium.spaces import Box, Discrete
from torch import Tensor

import rlplug_core as rl

# %% [markdown]
# Against chapter 9 the shares are drawn, together with the noise of chapter 5, and handed to the network. To act and to
# choose, the network takes the mean of 8 evenly spaced quantiles.


# %%
@dataclass(frozen=True)
class ImplicitConfig(QuantileConfig):
    n_quantiles: rl.Count = 8  # drawn for each transition (N)
    n_target_quantiles: rl.Count = 8  # drawn for what follows it (N')
    n_acting_quantiles: rl.Count = 8  # whose mean is an action's value (K)


class RainbowIQN(QuantileRainbow):
    """Rainbow on the whole quantile function."""

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
        drawn = self.generator.random(
            (len(batch.weight), c.n_quantiles + c.n_target_quantiles), dtype=np.float32
        )
        shares = torch.from_numpy(drawn).to(self.device)
        return noise | {"shares": shares[:, : c.n_quantiles], "ahead": shares[:, c.n_quantiles :]}

    def shares(self, batch: rl.Transitions) -> Tensor:
        return batch.extras["shares"]

    def taken(self, batch: rl.Transitions) -> Tensor:
        """Z(s, a; τ), [B, N]."""
        noise = batch.extras["noise"][TAKEN]
        return chosen(
            self.q_network.distribution(batch.obs, noise, batch.extras["shares"]), batch.action
        )

    def ahead(self, batch: rl.Transitions) -> Tensor:
        """Z_target(s', ·; τ'), [B, A, N']."""
        return self.target_network.distribution(
            batch.next_obs, batch.extras["noise"][AHEAD], batch.extras["ahead"]
        )


# %% [markdown]
# ## By hand
#
# The embedding by its equation, for one share.


# %%
def by_hand() -> None:
    spec = rl.Spec(Box(-1, 1, (4,)), Discrete(3), 1, "by hand")
    network = rl.ImplicitQ(spec, rl.Net(hidden=(8, 8)))
    obs = torch.randn(1, 4)
    share = 0.3
    cosines = torch.tensor([np.cos(np.pi * i * share) for i in range(64)], dtype=torch.float32)
    embedded = (network.embedding.weight @ cosines + network.embedding.bias).relu()
    z = network.heads(network.encoder(obs) * embedded).squeeze(-1)
    asked = network.distribution(obs, shares=torch.tensor([[share]])).squeeze(-1)
    print("Z at the share 0.3:", [round(number, 3) for number in z[0].tolist()])
    assert torch.allclose(z, asked, atol=1e-5)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged `rainbow-iqn` with the settings of this guide is this learner, bit for bit. As it is, its preset for
# CartPole has smaller layers, and epsilon in place of noise, which alone may choose one action for whole episodes.
#
#     rlplug run rainbow-iqn CartPole-v1 --random-steps 0 --noisy factorized --learning-rate 2.3e-3 --net.hidden 256,256
#
# You have now seen every idea in it: ten files, one in each.
#
# From here: write a chapter 11. [The tutorial](../plugins/tutorial.md) turns a file like these into a package.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_10_rainbow_iqn:RainbowIQN")

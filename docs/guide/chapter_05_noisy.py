# %% [markdown]
# # 5. Noisy networks
#
# A random action every now and then is a poor explorer: it knows nothing of where there is something to find, and what
# it tries in one step it drops in the next. Noisy networks (Fortunato et al., 2018, arXiv:1706.10295) put the noise on
# weights instead:
#
#     y = (W + Σ_W ⊙ ε_W) x + b + Σ_b ⊙ ε_b
#
# W, b and the sizes of the noise Σ are learned, and ε is drawn anew. Where the loss suffers from noise, gradient
# descent makes Σ small; where nothing has been learned, noise stays and changes what is done. Each situation thus gets
# its own amount of exploration, and no schedule has to be chosen.
#
# Drawing a number for each weight is slow. *Factorized* noise draws one for each input and each output, and takes
# products: ε_W[j, i] = f(ε_j) f(ε_i) with f(x) = sgn(x) √|x|.

# %%
from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from chapter_01_dqn import DQNConfig, chosen
from chapter_04_dueling import DuelingDQN
from torch import Tensor

import rlplug_core as rl
from rlplug_core.nets.noisy import NoisyLinear

# %% [markdown]
# In rlplug noise is an *argument* of a network, not a hidden state of it. Whoever calls the network owns the random
# numbers: the agent draws for each step, and `learn` draws for each batch. So a loss gives the same number each time
# it is computed, and a resumed run draws what the uninterrupted one would have drawn.
#
# Against chapter 4 the network is noisy, the agent acts by its noise, and each of the three uses of a network in the
# loss (the value of the action taken, the values ahead, the choice among them) gets noise of its own.

# %%
#: What noise is drawn for.
TAKEN, AHEAD, CHOICE = range(3)


class NoisyDQN(DuelingDQN):
    """Deep Q-learning that explores by noise on its weights."""

    def network(self) -> rl.QNetwork:
        return rl.QNetwork(self.spec, self.config.net, dueling=True, noisy="factorized")

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        return rl.NoisyGreedy(
            self.q_network, self.q_network.draw, self.agent_seeds(rank), self.inference_backend
        )

    def learn(self, batch: rl.Transitions, now: DQNConfig, clock: rl.Clock) -> rl.Result:
        return super().learn(
            replace(batch, share=None, extras=batch.extras | self.draws(batch)), now, clock
        )

    def draws(self, batch: rl.Transitions) -> dict[str, Tensor]:
        """Random numbers for one loss."""
        noise = np.stack([self.q_network.draw(self.generator) for _ in (TAKEN, AHEAD, CHOICE)])
        return {"noise": torch.from_numpy(noise).to(self.device)}

    def taken(self, batch: rl.Transitions) -> Tensor:
        return chosen(self.q_network(batch.obs, batch.extras["noise"][TAKEN]), batch.action)

    def ahead(self, batch: rl.Transitions) -> Tensor:
        values: Tensor = self.target_network(batch.next_obs, batch.extras["noise"][AHEAD])
        return values

    def best(self, batch: rl.Transitions, ahead: Tensor) -> Tensor:
        values: Tensor = self.q_network(batch.next_obs, batch.extras["noise"][CHOICE])
        return values.argmax(1)


# %% [markdown]
# ## By hand
#
# A noisy layer of two inputs and one output, computed by the equation. Without noise it is a plain linear layer; that
# is how the agent acts when it is evaluated.


# %%
def by_hand() -> None:
    layer = NoisyLinear(2, 1, "factorized")
    x = torch.tensor([3.0, -1.0])
    noise = torch.from_numpy(layer.draw(np.random.default_rng(0)))
    into = noise[:2]
    out = noise[2:]  # f is applied already
    weight = layer.weight + layer.weight_sigma * torch.outer(out, into)
    bias = layer.bias + layer.bias_sigma * out
    y = weight @ x + bias
    print(f"with noise {y.item():.3f}, without {layer(x).item():.3f}")
    assert torch.allclose(layer(x, noise), y)
    assert torch.allclose(layer(x), layer.weight @ x + layer.bias)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged algorithm with the same options; the name `noisy-dqn` has only noisy layers:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5 --dueling --noisy factorized

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_05_noisy:NoisyDQN")

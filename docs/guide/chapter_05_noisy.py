# %% [markdown]
# # 5. Noisy networks
#
# Occasional random actions explore poorly: they do not depend on the state, and each step forgets what the last one
# tried. Noisy networks (Fortunato et al., 2018, arXiv:1706.10295) add noise to the weights instead:
#
#     y = (W + Σ_W ⊙ ε_W) x + b + Σ_b ⊙ ε_b
#
# The network learns W, b and the noise sizes Σ; ε is random. If noise increases the loss, gradient descent makes Σ
# small. If the network has learned nothing yet, the noise stays and changes the actions. So each state gets its own
# amount of exploration, and you need no schedule.
#
# One random number per weight is slow. *Factorized* noise draws one per input and one per output, and multiplies them:
# ε_W[j, i] = f(ε_j) f(ε_i) with f(x) = sgn(x) √|x|.

# %%
from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from chapter_01_dqn import DQNConfig, gather_actions
from chapter_04_dueling import DuelingDQN
from torch import Tensor

import rlplug_core as rl
from rlplug_core.nets.noisy import NoisyLinear

# %% [markdown]
# In rlplug noise is an *argument* of a network, not hidden state. The caller draws it: the agent for each step, and
# `learn` for each batch. So a loss always has the same value for the same arguments, and a resumed run draws the same
# numbers as an uninterrupted one.
#
# Compared with chapter 4, the network is noisy and the agent explores with its noise. The loss uses a network three
# times, for the current values, for the target values, and to select the next action; each use has its own noise.

# %%
#: The three uses of noise in the loss.
ONLINE, TARGET, SELECTION = range(3)


class NoisyDQN(DuelingDQN):
    """Deep Q-learning that explores with noise on its weights."""

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
        """Return random numbers for one loss."""
        noise = np.stack([self.q_network.draw(self.generator) for _ in (ONLINE, TARGET, SELECTION)])
        return {"noise": torch.from_numpy(noise).to(self.device)}

    def current_values(self, batch: rl.Transitions) -> Tensor:
        return gather_actions(
            self.q_network(batch.obs, batch.extras["noise"][ONLINE]), batch.action
        )

    def target_values(self, batch: rl.Transitions) -> Tensor:
        values: Tensor = self.target_network(batch.next_obs, batch.extras["noise"][TARGET])
        return values

    def next_action(self, batch: rl.Transitions, target_values: Tensor) -> Tensor:
        values: Tensor = self.q_network(batch.next_obs, batch.extras["noise"][SELECTION])
        return values.argmax(1)


# %% [markdown]
# ## Check by hand
#
# The equation gives the output of a noisy layer with two inputs and one output. Without noise it is a plain linear
# layer; the agent uses it this way in evaluations.


# %%
def by_hand() -> None:
    layer = NoisyLinear(2, 1, "factorized")
    x = torch.tensor([3.0, -1.0])
    noise = torch.from_numpy(layer.draw(np.random.default_rng(0)))
    input_noise = noise[:2]
    output_noise = noise[2:]  # f is applied already
    weight = layer.weight + layer.weight_sigma * torch.outer(output_noise, input_noise)
    bias = layer.bias + layer.bias_sigma * output_noise
    y = weight @ x + bias
    print(f"with noise {y.item():.3f}, without {layer(x).item():.3f}")
    assert torch.allclose(layer(x, noise), y)
    assert torch.allclose(layer(x), layer.weight @ x + layer.bias)


# %% [markdown]
# ## The packaged algorithm
#
# This is the packaged `dqn` with the same options. The name `noisy-dqn` has only noisy layers:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5 --dueling --noisy factorized

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_05_noisy:NoisyDQN")

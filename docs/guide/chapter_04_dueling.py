# %% [markdown]
# # 4. Dueling streams
#
# In many states the action hardly matters: the pole is upright, or it has already fallen. The value of the state
# matters, but a plain network must learn it separately for every action.
#
# A dueling network (Wang et al., 2016, arXiv:1511.06581, eq. 9) has two streams after its shared layers: one value V
# of the state and one advantage A per action. Every transition trains V, for any action.
#
#     Q(s, a) = V(s) + A(s, a) - mean_a' A(s, a')
#
# Why subtract the mean? V + A stays the same if V grows by 1 and all A shrink by 1, so neither would have a meaning.

# %%
from __future__ import annotations

import torch
from chapter_03_prioritized import PrioritizedDQN
from gymnasium.spaces import Box, Discrete

import rlplug_core as rl

# %% [markdown]
# Compared with chapter 3, only the network changes. Each stream has its own last hidden layer; the others are shared.


# %%
class DuelingDQN(PrioritizedDQN):
    """Deep Q-learning with separate streams for the state and the actions."""

    def network(self) -> rl.QNetwork:
        return rl.QNetwork(self.spec, self.config.net, dueling=True)


# %% [markdown]
# ## Check by hand
#
# The equation combines the two streams of a new network into its output.


# %%
def by_hand() -> None:
    spec = rl.Spec(Box(-1, 1, (4,)), Discrete(3), 1, "by hand")
    network = rl.QNetwork(spec, rl.Net(hidden=(8, 8)), dueling=True)
    obs = torch.randn(5, 4)
    features = network.encoder(obs)
    assert network.value is not None
    value = network.value(features)
    advantage = network.advantage(features)
    q = value + advantage - advantage.mean(1, keepdim=True)
    print("Q of the first observation:", [round(number, 3) for number in q[0].tolist()])
    assert torch.allclose(q, network(obs))
    assert torch.allclose(q.mean(1, keepdim=True), value, atol=1e-6)


# %% [markdown]
# The last assertion shows the meaning of V: it is the mean of the action values.
#
# ## The packaged algorithm
#
# This is the packaged `dqn` with the same options. The name `dueling-dqn` has only dueling streams:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5 --dueling

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_04_dueling:DuelingDQN")

# %% [markdown]
# # 2. Double Q-learning
#
# Values are estimates, some too high and some too low, and the maximum of estimates picks those that are too high.
# So max_a' Q_target(s', a') is larger than the truth even where every single value is right on average. The target
# carries the excess on to the values before it, and these to those before them.
#
# Double Q-learning (van Hasselt et al., 2016, arXiv:1509.06461) takes two opinions: the online network chooses the next
# action, and the target network says what it is worth. An action that one of them overrates by accident is seldom
# overrated by the other.
#
#     L = huber( r + γ Q_target(s', argmax_a' Q(s', a')) - Q(s, a) )

# %%
from __future__ import annotations

import torch
from chapter_01_dqn import DQN, chosen
from torch import Tensor

import rlplug_core as rl

# %% [markdown]
# Against chapter 1, who chooses changes, and nothing else:


# %%
class DoubleDQN(DQN):
    """Deep Q-learning whose next action is chosen by the online network."""

    def best(self, batch: rl.Transitions, ahead: Tensor) -> Tensor:
        values: Tensor = self.q_network(batch.next_obs)
        return values.argmax(1)


# %% [markdown]
# ## By hand
#
# Ten actions that are all worth 0, seen through two networks with independent errors of size 1. One maximum is far
# above 0; a choice by one network that the other one values is not.


# %%
def by_hand() -> None:
    torch.manual_seed(0)
    online = torch.randn(10_000, 10)
    target = torch.randn(10_000, 10)
    single = chosen(target, target.argmax(1)).mean()
    double = chosen(target, online.argmax(1)).mean()
    print(f"the truth is 0; one network says {single:.2f}, two say {double:.2f}")
    assert single > 1.4
    assert double.abs() < 0.05


# %% [markdown]
# ## The packaged algorithm
#
# The packaged algorithm with one option, which also has the name `ddqn`:
#
#     rlplug run dqn CartPole-v1 --double

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_02_double:DoubleDQN")

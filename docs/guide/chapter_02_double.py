# %% [markdown]
# # 2. Double Q-learning
#
# Values are estimates. Some are too high and some too low, and the maximum selects those that are too high. So
# max_a' Q_target(s', a') is too large even if every single value is right on average. The targets then pass this error
# on to the values of earlier states.
#
# Double Q-learning (van Hasselt et al., 2016, arXiv:1509.06461) uses two networks: the online network chooses the next
# action, and the target network evaluates it. If one network overestimates an action by chance, the other rarely does.
#
#     L = huber( r + γ Q_target(s', argmax_a' Q(s', a')) - Q(s, a) )

# %%
from __future__ import annotations

import torch
from chapter_01_dqn import DQN, gather_actions
from torch import Tensor

import rlplug_core as rl

# %% [markdown]
# Compared with chapter 1, only the choice of the next action changes:


# %%
class DoubleDQN(DQN):
    """Deep Q-learning; the online network chooses the next action."""

    def next_action(self, batch: rl.Transitions, target_values: Tensor) -> Tensor:
        values: Tensor = self.q_network(batch.next_obs)
        return values.argmax(1)


# %% [markdown]
# ## Check by hand
#
# Ten actions have the true value 0. Two networks estimate them with independent errors of size 1. The maximum of one
# network is far above 0. If one network chooses and the other evaluates, the result is close to 0.


# %%
def by_hand() -> None:
    torch.manual_seed(0)
    online = torch.randn(10_000, 10)
    target = torch.randn(10_000, 10)
    single = gather_actions(target, target.argmax(1)).mean()
    double = gather_actions(target, online.argmax(1)).mean()
    print(f"true value: 0; one network estimates {single:.2f}, two estimate {double:.2f}")
    assert single > 1.4
    assert double.abs() < 0.05


# %% [markdown]
# ## The packaged algorithm
#
# This is the packaged `dqn` with one option. It also has its own name, `ddqn`:
#
#     rlplug run dqn CartPole-v1 --double

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_02_double:DoubleDQN")

# %% [markdown]
# # 6. n-step returns
#
# A reward moves one step backwards each time the target network is renewed: the state before it learns first, then the
# state before that. With n rewards in the target it moves n steps at once (Sutton, 1988, doi:10.1007/BF00115009):
#
#     target = r₀ + γ r₁ + … + γⁿ⁻¹ rₙ₋₁ + γⁿ Q_target(sₙ, argmax_a Q(sₙ, a))
#
# There is a price. The n rewards are those of old actions, which the agent might not take today; the longer the sum,
# the more it says about the past policy. Rainbow's authors found 3 to be a good compromise.

# %%
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from chapter_03_prioritized import PrioritizedConfig
from chapter_05_noisy import NoisyDQN

import rlplug_core as rl

# %% [markdown]
# Against chapter 5 one number changes. The buffer keeps single steps and sums when a batch is drawn: `batch.reward` is
# the sum, `batch.next_obs` is sₙ, `batch.discount` is γⁿ. Where an episode ends earlier, the sum ends there too:
# `discount` is 0 behind a terminal state, and γᵏ where a time limit cut the episode after k steps.


# %%
@dataclass(frozen=True)
class NStepConfig(PrioritizedConfig):
    n_step: rl.Count = 3  # rewards summed before bootstrapping


class NStepDQN(NoisyDQN):
    """Deep Q-learning with three rewards in its targets."""

    Config = NStepConfig
    config: NStepConfig


# %% [markdown]
# ## By hand
#
# A corridor of five states with a reward of 1 at its end. We count how often the targets must be renewed until the
# first state knows of it.


# %%
def renewals(n: int, gamma: float = 0.9) -> int:
    reward = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    value = torch.zeros(6)
    count = 0  # the sixth is the terminal state
    while value[0] == 0:
        new = value.clone()
        for state in range(5):
            ahead = range(state, min(state + n, 5))
            new[state] = sum(gamma**k * reward[at] for k, at in enumerate(ahead))
            new[state] += gamma ** len(ahead) * value[ahead[-1] + 1]
        value = new
        count = count + 1
    assert torch.isclose(value[0], torch.tensor(gamma**4))
    return count


def by_hand() -> None:
    print("renewals with 1 step:", renewals(1), "and with 3:", renewals(3))
    assert (renewals(1), renewals(3)) == (5, 2)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged algorithm with the same options; the name `nstep-dqn` has only 3-step returns:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5 --dueling --noisy factorized --n-step 3

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_06_n_step:NStepDQN")

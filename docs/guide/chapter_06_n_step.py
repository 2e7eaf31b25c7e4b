# %% [markdown]
# # 6. n-step returns
#
# Each update of the target network moves information about a reward one step back: the last state learns first, then
# the state before it. With n rewards in the target it moves n steps at once (Sutton, 1988, doi:10.1007/BF00115009):
#
#     target = r₀ + γ r₁ + … + γⁿ⁻¹ rₙ₋₁ + γⁿ Q_target(sₙ, argmax_a Q(sₙ, a))
#
# The disadvantage: the n rewards come from old actions that the current agent might not take. A longer sum depends more
# on the old policy. The authors of Rainbow recommend n = 3 as a compromise.

# %%
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from chapter_03_prioritized import PrioritizedConfig
from chapter_05_noisy import NoisyDQN

import rlplug_core as rl

# %% [markdown]
# Compared with chapter 5, one number changes. The buffer stores single steps and computes the sum when it samples a
# batch: `batch.reward` is the sum, `batch.next_obs` is sₙ, and `batch.discount` is γⁿ. If the episode ends earlier, the
# sum ends there too: `discount` is 0 after a terminal state, and γᵏ if a time limit ended the episode after k steps.


# %%
@dataclass(frozen=True)
class NStepConfig(PrioritizedConfig):
    n_step: rl.Count = 3  # rewards summed before bootstrapping


class NStepDQN(NoisyDQN):
    """Deep Q-learning with three rewards in its targets."""

    Config = NStepConfig
    config: NStepConfig


# %% [markdown]
# ## Check by hand
#
# A corridor has five states and a reward of 1 at its end. We count the updates of the targets until the reward changes
# the value of the first state.


# %%
def target_updates(n: int, gamma: float = 0.9) -> int:
    reward = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    value = torch.zeros(6)  # the sixth state is terminal
    count = 0
    while value[0] == 0:
        new = value.clone()
        for state in range(5):
            window = range(state, min(state + n, 5))
            new[state] = sum(gamma**k * reward[later] for k, later in enumerate(window))
            new[state] += gamma ** len(window) * value[window[-1] + 1]
        value = new
        count += 1
    assert torch.isclose(value[0], torch.tensor(gamma**4))
    return count


def by_hand() -> None:
    print("updates with 1 step:", target_updates(1), "and with 3:", target_updates(3))
    assert (target_updates(1), target_updates(3)) == (5, 2)


# %% [markdown]
# ## The packaged algorithm
#
# This is the packaged `dqn` with the same options. The name `nstep-dqn` has only 3-step returns:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5 --dueling --noisy factorized --n-step 3

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_06_n_step:NStepDQN")

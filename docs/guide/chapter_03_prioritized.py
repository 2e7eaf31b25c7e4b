# %% [markdown]
# # 3. Prioritized replay
#
# Most stored transitions teach nothing new. Prioritized replay (Schaul et al., 2016, arXiv:1511.05952) samples
# transitions more often if they had a large error when they were last used:
#
#     P(i) = p_i^α / Σ_k p_k^α        with p_i = |δ_i| + ε, δ_i the error of transition i
#
# α sets the strength: with α = 0 all transitions are equally likely. But the mean loss of such a sample is biased
# towards transitions with large errors. They must count less, so each loss gets an *importance weight*, divided by the
# largest weight of its batch:
#
#     w_i = (N P(i))^-β / max_j w_j
#
# With β = 1 the weights correct the bias completely. This matters most when values are about to converge, so β rises to
# 1 over the run. A new transition has no error yet. It gets the largest priority so far, so that it is used soon.

# %%
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from chapter_01_dqn import DQNConfig
from chapter_02_double import DoubleDQN

import rlplug_core as rl
from rlplug_core.buffers.sum_tree import SumTree

# %% [markdown]
# Compared with chapter 2, only the buffer changes. Chapter 1 already has the rest: `learn` returns the errors, the
# runner passes them to the buffer, and `batch.mean` multiplies each loss by its weight.


# %%
@dataclass(frozen=True)
class PrioritizedConfig(DQNConfig):
    # exponent of priorities: how strongly replay prefers large TD errors
    alpha: rl.NonNegative = 0.5
    beta: rl.Fraction = 0.4  # initial exponent of importance weights; it rises to 1


class PrioritizedDQN(DoubleDQN):
    """Deep Q-learning that replays transitions with large errors more often."""

    Config = PrioritizedConfig
    config: PrioritizedConfig

    def buffer(self) -> rl.PrioritizedReplay:
        c = self.config
        seeds = self.seeds.child("buffer")
        priority = rl.Priority(c.alpha, rl.linear(c.beta, 1.0))
        return rl.PrioritizedReplay(
            c.buffer_size,
            self.pace(),
            n_step=c.n_step,
            gamma=c.gamma,
            seeds=seeds,
            device=self.device,
            priority=priority,
        )


# %% [markdown]
# ## Check by hand
#
# The buffer stores sums of priorities in a tree. The tree finds the transition of a random number in a few steps, even
# if there are many. Its samples follow P, and the weights make all transitions count equally again.


# %%
def by_hand() -> None:
    mass = np.array([1.0, 4.0, 9.0, 2.0]) ** 0.5
    tree = SumTree(4)
    tree.set(np.arange(4), mass)
    draws = tree.find(np.random.default_rng(0).random(100_000) * tree.total)
    frequency = np.bincount(draws, minlength=4) / len(draws)
    probability = mass / mass.sum()
    print("frequency:  ", frequency.round(3).tolist())
    print("probability:", probability.round(3).tolist())
    assert np.allclose(frequency, probability, atol=0.01)
    weight = (4 * probability) ** -1.0
    print("frequency times weight:", (frequency * weight).round(2).tolist())
    assert np.allclose(frequency * weight, 1 / 4, atol=0.01)


# %% [markdown]
# ## The packaged algorithm
#
# This is the packaged `dqn` with the same options. The name `per-dqn` has only prioritized replay:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_03_prioritized:PrioritizedDQN")

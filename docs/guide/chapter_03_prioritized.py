# %% [markdown]
# # 3. Prioritized replay
#
# Most of what is remembered teaches nothing new. Prioritized replay (Schaul et al., 2016, arXiv:1511.05952) draws
# transitions more often whose value was far off when they were last looked at:
#
#     P(i) = p_i^α / Σ_k p_k^α        with p_i = |δ_i| + a little, δ_i the error of transition i
#
# α says how strongly: with 0 all are alike. But an expectation over other transitions is another expectation. What is
# drawn too often must count less, so each loss gets an *importance weight*, divided by the largest of its batch:
#
#     w_i = (N P(i))^-β / max_j w_j
#
# With β = 1 the preference is undone entirely. That matters most when values are about to settle, so β rises to 1 over
# the run. A new transition has no error yet; it gets the largest priority so far, so that each is seen at least once.

# %%
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from chapter_01_dqn import DQNConfig
from chapter_02_double import DoubleDQN

import rlplug_core as rl
from rlplug_core.buffers.segments import SumTree

# %% [markdown]
# Against chapter 2 there is another buffer. The rest is in place since chapter 1: `learn` returns the errors, which
# the runner feeds back to the buffer, and `batch.mean` multiplies each loss by its weight.


# %%
@dataclass(frozen=True)
class PrioritizedConfig(DQNConfig):
    # exponent of priorities: how strongly replay prefers large TD errors
    alpha: rl.NonNegative = 0.5
    beta: rl.Fraction = 0.4  # exponent of importance weights at the beginning; it rises to 1


class PrioritizedDQN(DoubleDQN):
    """Deep Q-learning on transitions whose values were far off."""

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
# ## By hand
#
# The buffer keeps the sums of priorities in a tree, which finds the transition that a random number falls on in a few
# steps, however many there are. Its draws follow P, and the weights give every transition the same say again.


# %%
def by_hand() -> None:
    mass = np.array([1.0, 4.0, 9.0, 2.0]) ** 0.5
    tree = SumTree(4)
    tree.set(np.arange(4), mass)
    draws = tree.find(np.random.default_rng(0).random(100_000) * tree.total)
    drawn = np.bincount(draws, minlength=4) / len(draws)
    wanted = mass / mass.sum()
    print("drawn :", drawn.round(3).tolist())
    print("wanted:", wanted.round(3).tolist())
    assert np.allclose(drawn, wanted, atol=0.01)
    weight = (4 * wanted) ** -1.0
    print("drawn times weight:", (drawn * weight).round(2).tolist())
    assert np.allclose(drawn * weight, 1 / 4, atol=0.01)


# %% [markdown]
# ## The packaged algorithm
#
# The packaged algorithm with the same options; the name `per-dqn` has only prioritized replay:
#
#     rlplug run dqn CartPole-v1 --double --priority.alpha 0.5

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_03_prioritized:PrioritizedDQN")

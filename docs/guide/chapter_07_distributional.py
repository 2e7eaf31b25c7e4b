# %% [markdown]
# # 7. Distributions of returns
#
# Two roads may take ten minutes on average: one always takes ten, the other five or fifteen. Q cannot distinguish them.
# A distributional learner learns the whole distribution Z(s, a) of the return; Q is its mean. It still acts on the
# mean, but it learns more from each transition, and a distribution is easier to fit than one average over different
# futures.
#
# C51 (Bellemare et al., 2017, arXiv:1707.06887) learns probabilities p₁ … p₅₁ of 51 equally spaced returns z₁ … z₅₁,
# the *atoms*. The target distribution is the distribution of the next state, scaled by γ and shifted by r. Its atoms
# fall between the old ones, so Φ splits each probability between the two neighbors. The loss is a cross-entropy:
#
#     L = - Σᵢ (Φ (r + γ Z_target(s', a')))ᵢ log pᵢ(s, a)

# %%
from __future__ import annotations

from dataclasses import dataclass

import torch
from chapter_01_dqn import gather_actions
from chapter_05_noisy import ONLINE, TARGET
from chapter_06_n_step import NStepConfig, NStepDQN
from torch import Tensor

import rlplug_core as rl

# %% [markdown]
# Compared with chapter 6, the loss uses the `distribution` of each action [B, A, atoms] instead of its mean. A call of
# the network still returns means, so acting and the choice of the next action do not change. Chapter 9 also uses these
# two methods.


# %%
class Distributional(NStepDQN):
    """Q-learning of distributions; a subclass defines the kind of distribution."""

    def current_values(self, batch: rl.Transitions) -> Tensor:
        """Return Z(s, a) [B, atoms]."""
        return gather_actions(
            self.q_network.distribution(batch.obs, batch.extras["noise"][ONLINE]), batch.action
        )

    def target_values(self, batch: rl.Transitions) -> Tensor:
        """Return Z_target(s', ·) [B, A, atoms]."""
        return self.target_network.distribution(batch.next_obs, batch.extras["noise"][TARGET])


# %% [markdown]
# The network of C51 returns log-probabilities. Its atoms must cover the *discounted* returns of the task. CartPole
# gives a reward of 1 per step for up to 500 steps; with γ = 0.99 all returns are between 0 and 1 / (1 - 0.99) = 100.


# %%
@dataclass(frozen=True)
class C51Config(NStepConfig):
    n_atoms: rl.Several = 51  # number of atoms
    v_min: float = 0.0  # smallest return
    v_max: float = 100.0  # largest return


class C51(Distributional):
    """Q-learning of distributions on equally spaced atoms."""

    Config = C51Config
    config: C51Config
    q_network: rl.CategoricalQ

    def network(self) -> rl.CategoricalQ:
        c = self.config
        return rl.CategoricalQ(
            self.spec, c.net, c.v_min, c.v_max, c.n_atoms, dueling=True, noisy="factorized"
        )

    def losses(self, batch: rl.Transitions) -> tuple[Tensor, Tensor]:
        log_probability = self.current_values(batch)
        next_probability = self.next_values(batch).exp()
        target = rl.categorical_projection(
            next_probability, batch.reward, batch.discount, self.q_network.support
        )
        return -(target * log_probability).sum(1), self.error(target, log_probability.detach())

    def error(self, target: Tensor, log_probability: Tensor) -> Tensor:
        """Return the absolute error of the mean [B], as in the previous chapters."""
        return ((target - log_probability.exp()) @ self.q_network.support).abs()


# %% [markdown]
# ## Check by hand
#
# A slow version of Φ: each atom moves to r + γ z, and its probability goes to the two atoms around this return, mostly
# to the nearer one. The total probability stays 1. If no return is outside the range of the atoms, the new mean is r
# plus γ times the old mean.


# %%
def by_hand() -> None:
    support = torch.linspace(0, 10, 11)
    probability = torch.rand(11).softmax(0)
    reward = torch.tensor([0.25])
    discount = torch.tensor([0.9])
    slow = torch.zeros(11)
    for p, z in zip(probability, support, strict=True):
        place = (reward + discount * z).clamp(0, 10).item()
        low = min(int(place), 9)
        slow[low] += p * (low + 1 - place)
        slow[low + 1] += p * (place - low)
    fast = rl.categorical_projection(probability.unsqueeze(0), reward, discount, support)[0]
    print(
        f"mass {fast.sum():.3f}; the mean was {probability @ support:.3f} and is {fast @ support:.3f}"
    )
    assert torch.allclose(fast, slow, atol=1e-5)
    assert torch.isclose(
        fast @ support, (reward + discount * (probability @ support))[0], atol=1e-4
    )


# %% [markdown]
# ## The packaged algorithm
#
# The packaged algorithm is `c51`. With all variants on, its loss is the same as here, but its replay uses other
# priorities: they are the change of the next chapter.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_07_distributional:C51")

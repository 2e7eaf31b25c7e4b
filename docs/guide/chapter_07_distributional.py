# %% [markdown]
# # 7. Distributions of returns
#
# Two roads may take ten minutes on average, one always, the other five or fifteen. Q cannot tell them apart. A
# distributional learner keeps the whole distribution Z(s, a) of the return, of which Q is the mean. It still acts by
# the mean, but it learns more from each transition, and what it learns is easier to fit than one number that averages
# over different futures.
#
# C51 (Bellemare et al., 2017, arXiv:1707.06887) puts probabilities p₁ … p₅₁ on 51 returns z₁ … z₅₁ at equal distances,
# the *atoms*. The target distribution is that of the next state, shrunk by γ and shifted by r. Its atoms no longer lie
# on the old ones, so Φ splits each probability between its two neighbors. Then the loss is a cross-entropy:
#
#     L = - Σᵢ (Φ (r + γ Z_target(s', a')))ᵢ log pᵢ(s, a)

# %%
from __future__ import annotations

from dataclasses import dataclass

import torch
from chapter_01_dqn import chosen
from chapter_05_noisy import AHEAD, TAKEN
from chapter_06_n_step import NStepConfig, NStepDQN
from torch import Tensor

import rlplug_core as rl

# %% [markdown]
# Against chapter 6 the loss looks at the `distribution` behind each action, [B, A, atoms], instead of its mean. Calling
# the network still gives means, so that acting and choosing are as before. Chapter 9 will use these two methods as
# well.


# %%
class Distributional(NStepDQN):
    """Q-learning of distributions; a subclass says of which kind."""

    def taken(self, batch: rl.Transitions) -> Tensor:
        """Z(s, a), [B, atoms]."""
        return chosen(
            self.q_network.distribution(batch.obs, batch.extras["noise"][TAKEN]), batch.action
        )

    def ahead(self, batch: rl.Transitions) -> Tensor:
        """Z_target(s', ·), [B, A, atoms]."""
        return self.target_network.distribution(batch.next_obs, batch.extras["noise"][AHEAD])


# %% [markdown]
# C51's network gives log-probabilities. Its atoms must cover the *discounted* returns that occur. CartPole gives 1 per
# step for up to 500 steps; discounted with 0.99, all of them lie between 0 and 1 / (1 - 0.99) = 100.


# %%
@dataclass(frozen=True)
class C51Config(NStepConfig):
    n_atoms: rl.Several = 51  # returns that are told apart
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
        log_probability = self.taken(batch)
        following = self.following(batch).exp()
        target = rl.categorical_projection(
            following, batch.reward, batch.discount, self.q_network.support
        )
        return -(target * log_probability).sum(1), self.error(target, log_probability.detach())

    def error(self, target: Tensor, log_probability: Tensor) -> Tensor:
        """How wrong the mean was [B], as in the chapters before."""
        return ((target - log_probability.exp()) @ self.q_network.support).abs()


# %% [markdown]
# ## By hand
#
# Φ the slow way: each atom moves to r + γ z, and its probability goes to the two atoms around that place, more of it to
# the nearer one. Nothing gets lost, and as long as nothing falls beyond the ends, the mean moves just as it should.


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
# The packaged algorithm is `c51`, and the name has C51 alone. With every switch on, its loss is the same as here; but
# its replay measures errors in another way, which is the change of the next chapter.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_07_distributional:C51")

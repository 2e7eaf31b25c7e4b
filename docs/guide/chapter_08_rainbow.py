# %% [markdown]
# # 8. Rainbow
#
# Rainbow (Hessel et al., 2018, arXiv:1710.02298) combines the ideas of six papers: double Q-learning (chapter 2),
# prioritized replay (3), dueling streams (4), noisy layers (5), 3-step returns (6) and distributions (7). Only one
# detail is missing. Our replay still prefers transitions with a large error of the *mean*. But the network learns a
# distribution, and a distribution can be wrong although its mean is right. The priority of Rainbow is the divergence
# between the distribution and its target:
#
#     p = D_KL( Φ (r + γ Z_target(s', a')) ‖ Z(s, a) ) = Σᵢ tᵢ log tᵢ - Σᵢ tᵢ log pᵢ
#
# Here t is the target. The second sum is the loss itself.

# %%
from __future__ import annotations

import torch
from chapter_07_distributional import C51
from torch import Tensor

# %% [markdown]
# Compared with chapter 7, only the error changes:


# %%
class Rainbow(C51):
    """All six ideas; replay prefers transitions with a wrong distribution."""

    def error(self, target: Tensor, log_probability: Tensor) -> Tensor:
        loss = -(target * log_probability).sum(1)
        divergence = loss + target.xlogy(target).sum(1)
        return divergence.clamp(min=0)  # rounding may give a negative number


# %% [markdown]
# ## Check by hand
#
# Two distributions have the same mean. The error of chapter 7 is 0, but the divergence is large. The divergence of
# equal distributions is 0.


# %%
def by_hand() -> None:
    support = torch.tensor([0.0, 5.0, 10.0])
    always = torch.tensor([0.01, 0.98, 0.01])
    sometimes = torch.tensor([0.49, 0.02, 0.49])
    mean = ((always - sometimes) @ support).abs()
    divergence = torch.sum(always * (always / sometimes).log())
    print(f"means differ by {mean:.2f}, distributions by {divergence:.2f} nats")
    assert mean < 1e-5
    assert divergence > 3


# %% [markdown]
# ## The packaged algorithm
#
# This learner equals `rlplug run rainbow CartPole-v1 --random-steps 0`, bit for bit. `rainbow` is only a preset: `c51`
# with all variants on, in `rlplug_algos/presets/rainbow.toml`. The preset also fills the replay buffer with random
# actions. Which of the six ideas helps depends on the problem. Turn one off and compare:
# `rlplug run rainbow CartPole-v1 --no-double`.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_08_rainbow:Rainbow")

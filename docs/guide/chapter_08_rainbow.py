# %% [markdown]
# # 8. Rainbow
#
# Rainbow (Hessel et al., 2018, arXiv:1710.02298) asked whether the ideas of six papers go together. They do: double
# Q-learning (chapter 2), prioritized replay (3), dueling streams (4), noisy layers (5), 3-step returns (6) and
# distributions (7). So we have it all but for one detail. Replay still prefers transitions whose *mean* was far off,
# though what is learned is a distribution, which can be wrong while its mean is right. Rainbow's priority is how far
# the distribution is from its target:
#
#     p = D_KL( Φ (r + γ Z_target(s', a')) ‖ Z(s, a) ) = Σᵢ tᵢ log tᵢ - Σᵢ tᵢ log pᵢ
#
# where t is the target. The second sum is the loss itself.

# %%
from __future__ import annotations

import torch
from chapter_07_distributional import C51
from torch import Tensor

# %% [markdown]
# Against chapter 7, the error changes:


# %%
class Rainbow(C51):
    """Everything so far, with replay that prefers distributions that were far off."""

    def error(self, target: Tensor, log_probability: Tensor) -> Tensor:
        loss = -(target * log_probability).sum(1)
        return (loss + target.xlogy(target).sum(1)).clamp(
            min=0
        )  # rounding may leave less than nothing


# %% [markdown]
# ## By hand
#
# Two distributions of the same mean: the error of chapter 7 sees no difference, the divergence does. It is 0 where the
# two agree.


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
# This is `rlplug run rainbow CartPole-v1 --random-steps 0`, bit for bit. That name has no code: it is a preset, `c51`
# with every switch on, in `rlplug_algos/presets/rainbow.toml`; it fills the replay buffer with random actions besides.
# Which of the six ideas helps depends on the problem. Turn one off and look:
# `rlplug run rainbow CartPole-v1 --no-double`.

# %%
if __name__ == "__main__":
    from lesson import lesson

    by_hand()
    lesson("chapter_08_rainbow:Rainbow")

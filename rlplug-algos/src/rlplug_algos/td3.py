"""Twin delayed deterministic policy gradient, TD3 (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rlplug_algos.ddpg import DDPG, DDPGConfig
from rlplug_core.batches import Transitions
from rlplug_core.config import Count, NonNegative, Positive


@dataclass(frozen=True)
class TD3Config(DDPGConfig):
    """Options of TD3."""

    critics: Count = 2
    policy_every: Count = 2
    critic_lr: Positive = 3e-4
    smoothing: NonNegative = 0.2  # standard deviation of the noise on the target policy's actions
    smoothing_clip: NonNegative = 0.5  # and its largest size


class TD3(DDPG):
    """DDPG with the lower of two critics, smoothed targets and a delayed policy."""

    Config = TD3Config
    config: TD3Config

    def draws(self, batch: Transitions) -> dict[str, Tensor]:
        return self.gaussian(batch, "smoothing")

    def next_action(self, batch: Transitions) -> Tensor:
        """The target policy's action and clipped noise (section 5.3), held in [-1, 1]."""
        clip = self.config.smoothing_clip
        noise = (self.config.smoothing * batch.extras["smoothing"]).clamp(-clip, clip)
        return (super().next_action(batch) + noise).clamp(-1, 1)

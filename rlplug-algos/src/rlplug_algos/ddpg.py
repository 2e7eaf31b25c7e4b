"""Deep deterministic policy gradient (Lillicrap et al., 2016, arXiv:1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from rlplug_algos.off_policy import OffPolicy, OffPolicyConfig
from rlplug_core.algorithm import target_network
from rlplug_core.batches import Transitions
from rlplug_core.config import Count, Fraction, NonNegative, Positive
from rlplug_core.continuous import ActionNoise, GaussianNoise, NoiseAgent, OrnsteinUhlenbeck
from rlplug_core.errors import UsageError
from rlplug_core.nets.actor_critic import ActionCritic, ActionCritics, DeterministicPolicy
from rlplug_core.scheduled import unguarded


@dataclass(frozen=True)
class DDPGConfig(OffPolicyConfig):
    """Options of DDPG."""

    critics: Count = 1
    critic_lr: Positive = 1e-3
    noise: Literal["gaussian", "ornstein-uhlenbeck"] = "gaussian"  # what is added to actions to explore
    sigma: NonNegative = 0.1  # its standard deviation, of Ornstein-Uhlenbeck noise that of one step
    theta: Fraction | None = None  # the share by which Ornstein-Uhlenbeck noise falls back to 0 in a step; none is 0.15


class DDPG(OffPolicy):
    """A deterministic policy climbs its critic."""

    Config = DDPGConfig
    config: DDPGConfig
    policy: DeterministicPolicy
    critics: ActionCritics

    def networks(self) -> None:
        c = self.config
        self.policy = DeterministicPolicy(self.spec, c.net)
        self.critics = ActionCritics(lambda: ActionCritic(self.spec, c.net), c.critics)
        self.target_policy, self.target_critics = target_network(self.policy), target_network(self.critics)

    def pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.target_policy, self.policy), (self.target_critics, self.critics)]

    def agent(self, rank: int = 0, ranks: int = 1) -> NoiseAgent:
        return NoiseAgent(self.policy, self.noise(), self.agent_seeds(rank), self.acting, self.config.warmup)

    def noise(self) -> ActionNoise:
        """What an agent adds to its actions.

        Raises:
            UsageError: it has no use for `theta`.
        """
        sigma, given = self.schedule("sigma"), unguarded(self.config).theta is not None
        if self.config.noise == "ornstein-uhlenbeck":
            return OrnsteinUhlenbeck(sigma, self.schedule("theta")) if given else OrnsteinUhlenbeck(sigma)
        if given:
            raise UsageError(
                "theta is how Ornstein-Uhlenbeck noise falls back to 0, and Gaussian noise is new at every step; "
                "give --noise ornstein-uhlenbeck, or leave theta at none"
            )
        return GaussianNoise(sigma)

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """r + discount * the lowest Q_target(s', a') of the critics."""
        lowest: Tensor = self.target_critics(batch.next_obs, self.next_action(batch)).amin(0)
        return batch.reward + batch.discount * lowest

    def next_action(self, batch: Transitions) -> Tensor:
        """a' = the target policy's action [B, dims]."""
        action: Tensor = self.target_policy(batch.next_obs)
        return action

    def policy_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """-Q(s, policy(s)) of the first critic (eq. 6)."""
        value: Tensor = self.critics[0](batch.obs, self.policy(batch.obs))
        loss = -batch.mean(value)
        return loss, {"loss/policy": loss.detach()}

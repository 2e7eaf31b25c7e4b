"""Soft actor-critic with automatic temperature (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlplug_algos.off_policy import OffPolicy, OffPolicyConfig
from rlplug_core.algorithm import target_network
from rlplug_core.batches import Transitions
from rlplug_core.config import Positive
from rlplug_core.continuous import SampleAgent
from rlplug_core.errors import UsageError
from rlplug_core.nets.actor_critic import ActionCritic, ActionCritics, Ensemble
from rlplug_core.nets.heads import Head, SquashedGaussian, squashed
from rlplug_core.nets.modules import Policy
from rlplug_core.scheduled import unguarded


@dataclass(frozen=True)
class SACConfig(OffPolicyConfig):
    """Options of SAC."""

    temperature: Positive = 1.0  # weight of the entropy, at the beginning if it is learned
    automatic: bool = True  # learn the temperature, so that the policy keeps the target entropy
    target_entropy: float | None = None  # in nats, only with automatic; none is minus the number of action dimensions


#: The lowest temperature, where a schedule ends at 0.
TINY = 1e-30


class Temperature(nn.Module):
    """The weight of the entropy, as its logarithm: learned from a start, or what the option says at every update."""

    def __init__(self, config: SACConfig) -> None:
        super().__init__()
        if unguarded(config).target_entropy is not None and not config.automatic:
            raise UsageError(
                "target_entropy is what a learned temperature keeps, and --no-automatic learns none; leave it at none"
            )
        start = config.temperature if config.automatic else 1.0
        self.log = nn.Parameter(torch.tensor([math.log(start)]), requires_grad=config.automatic)

    def follow(self, config: SACConfig) -> None:
        """Take over what the option says at the moment of an update."""
        if not config.automatic:
            self.log.fill_(math.log(max(config.temperature, TINY)))

    def forward(self) -> Tensor:
        return self.log.detach().exp()


class SAC(OffPolicy):
    """A stochastic policy that maximises return and entropy, by critics that count both."""

    Config = SACConfig
    config: SACConfig
    policy: Policy
    critics: Ensemble

    def networks(self) -> None:
        c = self.config
        self.policy = Policy(self.spec, c.net, make=squashed)
        self.entropy(self.policy.head)
        self.critics = ActionCritics(self.critic, c.critics)
        self.target_critics = target_network(self.critics)

    def entropy(self, head: Head) -> None:
        """Make the temperature for a policy's head."""
        assert isinstance(head, SquashedGaussian)
        self.head, self.temperature = head, Temperature(self.config)

    def critic(self) -> nn.Module:
        """A new critic."""
        return ActionCritic(self.spec, self.config.net)

    def pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.target_critics, self.critics)]

    def policy_modules(self) -> list[nn.Module]:
        return [self.policy, self.temperature]

    def agent(self, rank: int = 0, ranks: int = 1) -> SampleAgent:
        return SampleAgent(self.policy, self.agent_seeds(rank), self.acting, self.config.warmup)

    def begin(self, batch: Transitions) -> None:
        self.temperature.follow(self.config)
        super().begin(batch)

    def draws(self, batch: Transitions) -> dict[str, Tensor]:
        return self.gaussian(batch, "noise", "next_noise")

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """r + discount * (the lowest Q_target(s', a') - temperature * log pi(a' | s')), a' drawn (eq. 5 and 6)."""
        action, log_prob = self.head.draw(self.policy(batch.next_obs), batch.extras["next_noise"])
        lowest: Tensor = self.target_critics(batch.next_obs, action).amin(0)
        soft: Tensor = lowest - self.temperature() * log_prob
        return batch.reward + batch.discount * soft

    def policy_loss(self, batch: Transitions) -> tuple[Any, ...]:
        return self.entropy_loss(batch, self.policy(batch.obs))

    def entropy_loss(self, batch: Transitions, outputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """temperature * log pi(a | s) - Q(s, a) (eq. 9), and the temperature's own loss (eq. 18, on its logarithm)."""
        action, log_prob = self.head.draw(outputs, batch.extras["noise"])
        policy = self.temperature() * log_prob - self.value(batch, action)
        missing = -self.temperature.log * (log_prob.detach() + self.aim())
        loss = batch.mean(policy + missing)
        metrics = {"loss/policy": policy, "loss/entropy": -log_prob}
        means = {name: batch.mean(term.detach()) for name, term in metrics.items()}
        return loss, {**means, "loss/temperature": self.temperature().squeeze()}

    def aim(self) -> float:
        """The entropy to keep."""
        given = self.config.target_entropy
        return -float(self.head.dims) if given is None else given

    def value(self, batch: Transitions, action: Tensor) -> Tensor:
        """What the policy climbs [B]: the lowest of the critics."""
        lowest: Tensor = self.critics(batch.obs, action).amin(0)
        return lowest

"""Soft actor-critic for discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlplug_algos.off_policy import OffPolicy
from rlplug_algos.sac import SACConfig, Temperature
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import target_network
from rlplug_core.batches import Transitions
from rlplug_core.nets.actor_critic import Ensemble
from rlplug_core.nets.heads import ILLEGAL
from rlplug_core.nets.modules import Policy, QNetwork


@dataclass(frozen=True)
class SACDiscreteConfig(SACConfig):
    """Options of discrete SAC."""

    warmup: ClassVar[int] = 0  # type: ignore[misc]  # takes the option away: the policy begins almost uniform
    target_entropy: float | None = None  # in nats, only with automatic; none is 0.98 of the largest of legal actions


class SACDiscrete(OffPolicy):
    """SAC with expectations over all actions in place of samples; masks are kept."""

    Config = SACDiscreteConfig
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: SACDiscreteConfig

    def networks(self) -> None:
        c = self.config
        self.policy = Policy(self.spec, c.net)
        self.temperature = Temperature(c)
        net = replace(c.net, output_gain=None)  # which is the policy's
        self.critics = Ensemble(lambda: QNetwork(self.spec, net), c.critics)
        self.target_critics = target_network(self.critics)

    def pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.target_critics, self.critics)]

    def policy_modules(self) -> list[nn.Module]:
        return [self.policy, self.temperature]

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        assert isinstance(self.policy, Policy)
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def begin(self, batch: Transitions) -> None:
        self.temperature.follow(self.config)
        super().begin(batch)

    @torch.no_grad()
    def target(self, batch: Transitions) -> Tensor:
        """r + discount * sum of pi(a' | s') (lowest Q_target(s', a') - temperature * log pi(a' | s')) (eq. 10)."""
        log_probs = self.policy(batch.next_obs).log_softmax(-1)
        lowest = self.target_critics(batch.next_obs).amin(0)
        soft: Tensor = (log_probs.exp() * (lowest - self.temperature() * log_probs)).sum(-1)
        return batch.reward + batch.discount * soft

    def loss(self, batch: Transitions) -> tuple[Any, ...]:
        """Half the squared error of every critic at the action taken, summed over critics (eq. 5)."""
        target, action = self.target(batch), batch.action.unsqueeze(-1)
        values = torch.stack([critic(batch.obs).gather(1, action).squeeze(1) for critic in self.members()])
        loss = batch.mean(0.5 * (values - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(values.detach().mean(0))}

    def members(self) -> list[nn.Module]:
        assert isinstance(self.critics, Ensemble)
        return list(self.critics.members)

    def policy_loss(self, batch: Transitions) -> tuple[Any, ...]:
        """sum of pi (temperature * log pi - lowest Q) (eq. 12), and the temperature's loss (eq. 11, on its log)."""
        log_probs = self.policy(batch.obs).log_softmax(-1)
        with torch.no_grad():
            lowest = self.critics(batch.obs).amin(0)
        policy = (log_probs.exp() * (self.temperature() * log_probs - lowest)).sum(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).detach()
        loss = batch.mean(policy + self.temperature.log * (entropy - self.aim(log_probs)))
        means = {"loss/policy": batch.mean(policy.detach()), "loss/entropy": batch.mean(entropy)}
        return loss, {**means, "loss/temperature": self.temperature().squeeze()}

    def aim(self, log_probs: Tensor) -> Tensor:
        """The entropy [B] to keep, where illegal actions have a log-probability near `ILLEGAL`."""
        if self.config.target_entropy is not None:
            return torch.full_like(log_probs[:, 0], self.config.target_entropy)
        return 0.98 * (log_probs > ILLEGAL / 2).sum(-1).float().log()

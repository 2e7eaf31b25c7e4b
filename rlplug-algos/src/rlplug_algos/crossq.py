"""CrossQ: batch renormalisation in place of target networks (Bhatt et al., 2024, arXiv:1902.05605)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlplug_algos.sac import SAC, SACConfig
from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock, due
from rlplug_core.config import Count, Natural, Positive, log
from rlplug_core.nets.actor_critic import Ensemble
from rlplug_core.nets.net import Net
from rlplug_core.nets.renorm import Moments, RenormCritic, RenormPolicy, absorb
from rlplug_core.rules import Rule
from rlplug_core.types import Result, tree_map


@dataclass(frozen=True)
class CrossQConfig(SACConfig):
    """Options of CrossQ."""

    tau: ClassVar[float] = 1.0  # type: ignore[misc]  # takes the option away: there are no targets to move
    policy_every: Count = 3
    lr: Positive = 1e-3
    critic_lr: Positive = 1e-3
    renorm_warmup: Natural = 100_000  # gradient steps with plain batch normalisation at the beginning
    critic_net: Net = Net(hidden=(256, 256), activation="relu")  # of the critics; the paper's are 2048 wide

    search = {"lr": log(1e-5, 1e-2), "critic_lr": log(1e-5, 1e-2)}


class CrossQ(SAC):
    """SAC whose critics see both observations of a transition in one normalised batch."""

    Config = CrossQConfig
    config: CrossQConfig

    def networks(self) -> None:
        c = self.config
        self.policy = RenormPolicy(self.spec, c.net, c.renorm_warmup)
        self.entropy(self.policy.head)
        self.critics = Ensemble(self.critic, c.critics)

    def critic(self) -> nn.Module:
        return RenormCritic(self.spec, self.config.critic_net, self.config.renorm_warmup)

    def pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return []

    def rule(self) -> Rule:
        """With the paper's lower momentum."""
        return self.config.optimiser.rule(self.config.rule, betas=(0.5, 0.999), epsilon=1e-8)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        self.begin(batch)
        loss, metrics, moments = self.loss(batch)
        metrics["loss/critic_gradient_norm"] = self.critic_optimiser.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.policy_every):
            with self.frozen:
                loss, further, taken = self.policy_loss(batch)
            metrics |= {**further, "loss/policy_gradient_norm": self.policy_optimiser.minimise(loss, clock)}
            absorb(self.policy, taken)
        absorb(self.critics, moments)
        return Result(metrics)

    def loss(self, batch: Transitions) -> tuple[Any, ...]:
        """Squared errors with values of (s, a) and (s', a') from one forward pass (section 3.1); and its moments."""
        with torch.no_grad():
            action, log_prob = self.head.draw(self.policy(batch.next_obs), batch.extras["next_noise"])
        obs = tree_map(lambda now, then: torch.cat([now, then]), batch.obs, batch.next_obs)
        actions = torch.cat([batch.action.reshape(action.shape), action])
        weight = torch.cat([batch.weight, batch.weight * (batch.discount > 0)])  # nothing is seen after a termination
        moments: Moments = []
        values, following = self.critics(obs, actions, weight, moments).chunk(2, 1)
        soft = following.detach().amin(0) - self.temperature() * log_prob
        target = batch.reward + batch.discount * soft
        loss = batch.mean(0.5 * (values - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(values.detach().mean(0))}, moments

    def policy_loss(self, batch: Transitions) -> tuple[Any, ...]:
        """SAC's, with the policy's own moments taken and the critics' running ones."""
        moments: Moments = []
        outputs: Tensor = self.policy(batch.obs, batch.weight, moments)
        return *self.entropy_loss(batch, outputs), moments

"""Trust region policy optimisation (Schulman et al., 2015, arXiv:1502.05477): natural gradient and a line search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Samples, check_standardise, standardise
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Count, Fraction, NonNegative, Positive, log, uniform
from rlplug_core.estimators import gae
from rlplug_core.natural import TrustRegion
from rlplug_core.nets.heads import SPACES
from rlplug_core.nets.modules import Critic, Policy
from rlplug_core.nets.net import Net
from rlplug_core.normalise import RewardScale
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.scheduled import unguarded
from rlplug_core.types import Result


@dataclass(frozen=True)
class TRPOConfig(Config):
    """Options of TRPO."""

    steps: Count = 512  # rollout length per environment row
    gamma: Fraction = 0.99  # discount per step
    lam: Fraction = 0.95  # GAE lambda
    kl: Positive = 0.01  # how far the policy may move per rollout, as mean KL divergence
    damping: Positive = 0.1  # what is added to the Fisher matrix
    directions: Count = 10  # conjugate gradient steps
    tries: Count = 10  # step sizes of the line search, each 0.8 of the one before
    thin: Count = 1  # Fisher products look at every so many samples
    entropy: NonNegative = 0.0  # weight of the entropy bonus
    critic_lr: Positive = 1e-3  # step size of the critic's optimiser
    rule: RuleName = "adam"  # the optimiser of the critic
    optimiser: OptimiserOptions = OptimiserOptions()
    critic_epochs: Count = 10  # the critic's passes over each rollout; samples that fill no minibatch sit one out
    batch: Count = 128  # samples per minibatch of the critic
    scale_rewards: bool = False  # divide rewards by the running deviation of the discounted return
    popart: bool = False  # learn values in units of their running deviation (van Hasselt et al., 2016)
    net: Net = Net()

    search = {"kl": log(1e-3, 0.1), "critic_lr": log(1e-4, 1e-2), "lam": uniform(0.8, 1.0)}


class TRPO(Algorithm[Rollout]):
    """The policy moves once per rollout, by a step that is as long as its mean KL divergence allows."""

    Config = TRPOConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = SPACES
    config: TRPOConfig

    def build(self) -> None:
        c = self.config
        check_standardise(True, c.steps * self.spec.rows)
        self.policy, self.critic = Policy(self.spec, c.net).to(self.device), Critic(self.spec, c.net, popart=c.popart)
        self.rewards = RewardScale(c.gamma) if c.scale_rewards else nn.Identity()
        start = unguarded(c)  # `improve` follows both
        self.region = TrustRegion(self.policy, start.kl, start.damping, c.directions, c.tries)
        self.optim = self.optimiser([self.critic], self.step_size("critic_lr"), rule=c.optimiser.rule(c.rule))
        self.values = forward(self.critic, self.acting)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.steps)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        c, batch = self.config, self.rewards(batch)
        value, successor = batch.values(self.values)
        samples = batch.samples(*gae(batch, value, successor, c.gamma, c.lam), self.device)
        metrics = self.improve(samples)
        # Before the critic's steps: nothing clips the first ones, and Adam would remember how large they were.
        self.critic.absorb(samples)
        for _ in range(c.critic_epochs):
            for minibatch in samples.minibatches(c.batch, self.generator):
                loss = minibatch.mean((self.critic(minibatch.obs) - minibatch.target).square())
                norm = self.optim.minimise(loss / self.critic.unit**2, clock)
        return Result({**metrics, "loss/value": loss.detach(), "loss/gradient_norm": norm})

    def improve(self, samples: Samples) -> dict[str, Tensor | float]:
        """Move the policy: down the surrogate, within the region around where it was."""
        with torch.no_grad():
            before = self.policy(samples.obs)
        advantage = standardise(samples.advantage, samples.weight)
        batch = replace(samples, share=None, advantage=advantage, extras={"before": before})
        some = batch.take(torch.arange(0, len(before), self.config.thin, device=self.device))
        self.region.radius, self.region.damping = self.config.kl, self.config.damping
        move = self.region.step(
            lambda: self.loss(batch)[0], lambda: self.divergence(batch), lambda: self.divergence(some)
        )
        return {"loss/policy": move.loss, "loss/kl": move.divergence, "loss/failed_tries": float(move.failed)}

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """The surrogate (eq. 14), negated, and the entropy bonus; `extras["before"]` holds the old policy's outputs."""
        log_prob, entropy = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        ratio = (log_prob - self.policy.head.log_prob(batch.extras["before"], batch.action)).exp()
        loss = -batch.mean(ratio * batch.advantage + self.config.entropy * entropy)
        return loss, {"loss/policy": loss.detach()}

    def divergence(self, batch: Samples) -> Tensor:
        """The mean KL divergence from the old policy to the present one."""
        return batch.mean(self.policy.head.kl(batch.extras["before"], self.policy(batch.obs)))

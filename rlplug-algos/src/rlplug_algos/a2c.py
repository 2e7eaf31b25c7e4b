"""Advantage actor-critic, the synchronous form of A3C (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlplug_core.accelerate.forward import forward
from rlplug_core.agents import PolicyAgent
from rlplug_core.algorithm import RULES, Algorithm, RuleName
from rlplug_core.batches import Rollout, Samples, standardise
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Count, Fraction, NonNegative, Positive, log, uniform
from rlplug_core.estimators import gae
from rlplug_core.nets.modules import Critic, Policy
from rlplug_core.nets.net import Net
from rlplug_core.schedules import constant, linear
from rlplug_core.types import Result


@dataclass(frozen=True)
class A2CConfig(Config):
    """Options of A2C."""

    steps: Count = 5  # rollout length per environment row
    gamma: Fraction = 0.99  # discount per step
    lam: Fraction = 1.0  # GAE lambda; 1 gives n-step returns
    lr: Positive = 7e-4  # step size of the optimiser
    anneal: bool = False  # let the step size fall to 0 over the run
    rule: RuleName = "rmsprop"  # optimiser; rmsprop as in the paper
    entropy: NonNegative = 0.01  # weight of the entropy bonus
    value: NonNegative = 0.5  # weight of the value loss
    clip: Positive = 0.5  # largest gradient norm
    standardise: bool = False  # scale advantages to mean 0, deviation 1 in each batch
    net: Net = Net()

    search = {"lr": log(1e-5, 1e-2), "entropy": log(1e-5, 0.1), "lam": uniform(0.8, 1.0)}


class A2C(Algorithm[Rollout]):
    """One gradient step per rollout on policy, value and entropy."""

    Config = A2CConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: A2CConfig

    def build(self) -> None:
        c = self.config
        self.policy, self.critic = Policy(self.spec, c.net), Critic(self.spec, c.net)
        lr = linear(c.lr, 0.0) if c.anneal else constant(c.lr)
        self.optim = self.optimiser([self.policy, self.critic], lr, c.clip, RULES[c.rule]())
        self.values = forward(self.critic, self.acting)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.acting)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.steps)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        value, successor = batch.values(self.values)
        advantage, target = gae(batch, value, successor, self.config.gamma, self.config.lam)
        loss, metrics = self.loss(batch.samples(advantage, target, self.device))
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock, age=batch.weight.size)
        return Result(metrics)

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """Mnih et al. (2016), section 4: policy gradient, squared value error, entropy bonus."""
        c = self.config
        log_prob, entropy = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        advantage = standardise(batch.advantage, batch.weight) if c.standardise else batch.advantage
        policy = -log_prob * advantage
        value = (self.critic(batch.obs) - batch.target).square()
        loss = batch.mean(policy + c.value * value - c.entropy * entropy)
        metrics = {"loss/policy": policy, "loss/value": value, "loss/entropy": entropy}
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}

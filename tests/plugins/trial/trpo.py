"""Trust region policy optimization (Schulman et al., 2015, arXiv:1502.05477): natural gradient and a line search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlplug_core import Algorithm, Config
from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.batches import Rollout, Samples
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config.options import Count, Fraction, Positive
from rlplug_core.config.schedules import constant
from rlplug_core.learning.estimators import gae, standardize
from rlplug_core.learning.natural import TrustRegion
from rlplug_core.nets.forward import fast_forward
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.types import Result


@dataclass(frozen=True)
class TRPOConfig(Config):
    """Options of TRPO."""

    n_steps: Count = 64  # rollout length per environment row
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 0.95  # GAE lambda
    target_kl: Positive = 0.02  # how far the policy may move, as mean KL divergence
    critic_learning_rate: Positive = 1e-3  # step size of Adam for the critic
    critic_steps: Count = 10  # gradient steps of the critic per rollout
    net: Net = Net(hidden=(64,))


class TRPO(Algorithm[Rollout]):
    """The policy's parameters change in place, by core's trust region."""

    Config = TRPOConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete", "Box")
    config: TRPOConfig

    def build(self) -> None:
        c = self.config
        self.policy, self.critic = PolicyNetwork(self.spec, c.net), Critic(self.spec, c.net)
        self.optim = self.optimizer(
            "critic", [self.critic], learning_rate=constant(c.critic_learning_rate), max_grad_norm=0.5
        )
        self.region = TrustRegion(self.policy)
        self.values = fast_forward(self.critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> PolicyAgent:
        return PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> RolloutBuffer:
        return RolloutBuffer(self.config.n_steps)

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        c = self.config
        value, successor = batch.values(self.values)
        samples = batch.samples(*gae(batch, value, successor, c.gamma, c.gae_lambda), self.device)
        samples.advantage = standardize(samples.advantage, samples.weight)
        metrics = self.improve(samples)
        for _ in range(c.critic_steps):
            loss = samples.mean((self.critic(samples.obs) - samples.target).square())
            self.optim.minimize(loss, clock)
        return Result({**metrics, "loss/value": loss.detach()})

    def improve(self, batch: Samples) -> dict[str, Tensor | float]:
        """One natural gradient step (section 6 and appendix C), as long as the region allows."""
        with torch.no_grad():
            old = self.policy(batch.obs)
            old_log_prob = self.policy.head.log_prob(old, batch.action)
        move = self.region.step(
            lambda: self.loss((batch, old_log_prob))[0],
            lambda: batch.mean(self.policy.head.kl(old, self.policy(batch.obs))),
            radius=self.config.target_kl,
        )
        return {"loss/policy": move.loss, "loss/kl": move.divergence, "loss/failed": float(move.failed)}

    def loss(self, batch: tuple[Samples, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The surrogate (eq. 14), to be minimized."""
        samples, old_log_prob = batch
        log_prob = self.policy.head.log_prob(self.policy(samples.obs), samples.action)
        return -samples.mean((log_prob - old_log_prob).exp() * samples.advantage), {}

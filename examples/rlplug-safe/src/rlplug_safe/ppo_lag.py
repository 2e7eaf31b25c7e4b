"""PPO-Lagrangian: a limit on costs (Ray, Achiam and Amodei, 2019, Benchmarking safe exploration)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class PPOLagConfig(rl.Config):
    """Options of PPO-Lagrangian."""

    cost_limit: rl.NonNegative = 25.0  # largest mean cost of an episode
    # step size of the multiplier per rollout and unit of cost above the limit
    multiplier_learning_rate: rl.Scheduled[rl.Positive] = 0.05
    n_steps: rl.Count = 128  # rollout length per environment
    batch_size: rl.Count = 256  # samples per minibatch
    n_epochs: rl.Count = 10  # passes over each rollout; an incomplete last minibatch is dropped
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    gae_lambda: rl.Scheduled[rl.Fraction] = 0.95  # GAE lambda
    clip_range: rl.Scheduled[rl.Positive] = 0.2  # largest change of the probability ratio from 1
    ent_coef: rl.Scheduled[rl.NonNegative] = 0.0  # weight of the entropy bonus in the loss
    vf_coef: rl.Scheduled[rl.NonNegative] = 0.5  # weight of the losses of both critics
    net: rl.Net = rl.Net()
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the optimizer
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "multiplier_learning_rate": rl.log(1e-3, 1.0),
    }


class PPOLag(rl.Algorithm[rl.Rollout]):
    """Maximizes the return minus a multiplier times the cost; the multiplier rises while costs exceed the limit."""

    Config = PPOLagConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    signals: ClassVar[tuple[str, ...]] = ("cost",)
    config: PPOLagConfig
    multiplier: Tensor
    cost: Tensor

    def build(self) -> None:
        c = self.config
        rl.check_normalize_advantage(True, min(c.batch_size, c.n_steps * self.spec.num_envs))
        self.networks = rl.PolicyAndCritic(self.spec, c.net)
        self.policy = self.networks.policy
        self.critic = self.networks.critic
        self.cost_critic = rl.Critic(self.spec, replace(c.net, shared=False))
        self.register_buffer("multiplier", torch.zeros((), device=self.device))
        self.register_buffer("cost", torch.zeros((), device=self.device))
        parts = [self.policy, self.critic, self.cost_critic]
        self.ppo_optimizer = self.optimizer("ppo", parts)
        self.predict_value = rl.fast_forward(self.critic, self.inference_backend)
        self.predict_cost = rl.fast_forward(self.cost_critic, self.inference_backend)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        seeds = self.agent_seeds(rank)
        return rl.PolicyAgent(self.policy, seeds, self.inference_backend, log_prob=True)

    def buffer(self) -> rl.RolloutBuffer:
        return rl.RolloutBuffer(self.config.n_steps)

    def learn(self, batch: rl.Rollout, now: PPOLagConfig, clock: rl.Clock) -> rl.Result:
        self.move_multiplier(batch, now)
        samples = self.advantages(batch, now)
        metrics = dict[str, Tensor | float]()
        for _ in range(now.n_epochs):
            for minibatch in samples.minibatches(now.batch_size, self.generator):
                loss, terms = self.loss(minibatch, now)
                norm = self.ppo_optimizer.minimize(loss, clock, steps_ago=batch.size)
                metrics = {**terms, "loss/gradient_norm": norm}
        own = {"cost/episode": self.cost.clone(), "cost/multiplier": self.multiplier.clone()}
        return rl.Result({**metrics, **own})

    def evaluation_rank(self, evaluation: rl.Evaluated) -> tuple[float, ...]:
        """Rank evaluations within the limit above all others, and by their return; rank the others by their cost."""
        cost = float(np.mean(evaluation.signals["cost"]))
        if cost > self.config.cost_limit:
            return 0.0, -cost
        return 1.0, evaluation.mean

    def move_multiplier(self, rollout: rl.Rollout, now: PPOLagConfig) -> None:
        """Take a step of gradient ascent on the multiplier, which stays at 0 or above.

        The mean cost of an episode is the cost of the rollout divided by its number of ends.
        """
        valid = rollout.weight > 0
        ends = ((rollout.terminated | rollout.truncated) & valid).sum()
        if not ends:
            return
        self.cost.fill_(float((rollout.extras["cost"] * valid).sum() / ends))
        step = now.multiplier_learning_rate * (self.cost - now.cost_limit)
        self.multiplier.add_(step).clamp_(min=0)

    def advantages(self, rollout: rl.Rollout, now: PPOLagConfig) -> rl.Samples:
        """Return samples with advantage (A - multiplier * A_cost) / (1 + multiplier), and targets of both critics."""
        value, next_value = rollout.values(self.predict_value)
        advantage, target = rl.gae(rollout, value, next_value, now.gamma, now.gae_lambda)
        costs = replace(rollout, reward=rollout.extras["cost"])
        value, next_value = costs.values(self.predict_cost)
        cost, cost_target = rl.gae(costs, value, next_value, now.gamma, now.gae_lambda)
        price = np.float32(self.multiplier.item())
        samples = rollout.samples((advantage - price * cost) / (1 + price), target, self.device)
        extras = {"cost_target": rl.to_tensors(cost_target.reshape(-1), self.device)}
        return replace(samples, extras={**samples.extras, **extras}, share=samples.counts)

    @rl.pure
    def loss(self, batch: rl.Samples, now: PPOLagConfig) -> tuple[Tensor, dict[str, Tensor]]:
        """Return PPO's loss with the errors of both critics; and metrics."""
        outputs, value = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        ratio = (log_prob - batch.extras["log_prob"]).exp()
        advantage = rl.standardize(batch.advantage, batch.weight)
        policy_loss = -rl.clipped_surrogate(ratio, advantage, now.clip_range)
        value_loss = (value - batch.target).square()
        cost_loss = (self.cost_critic(batch.obs) - batch.extras["cost_target"]).square()
        critics = now.vf_coef * (value_loss + cost_loss)
        loss = batch.mean(policy_loss + critics - now.ent_coef * entropy)
        metrics = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "loss/cost_value": cost_loss,
            "loss/entropy": entropy,
        }
        return loss, {name: batch.mean(term.detach()) for name, term in metrics.items()}

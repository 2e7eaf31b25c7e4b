"""RLPD: online learning with offline data (Ball, Smith, Kostrikov and Levine, 2023, arXiv:2302.02948)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class RLPDConfig(rl.Config):
    """Options of RLPD."""

    learning_starts: rl.Count = 2_000  # env steps before the first gradient step
    random_steps: rl.Natural = 2_000  # first env steps, with uniformly random actions
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 4  # gradient steps of the critics per update
    policy_delay: rl.Count = 4  # gradient steps of the critics per step of the policy
    batch_size: rl.Count = 256  # transitions per gradient step
    buffer_size: rl.Count = 1_000_000  # own transitions that are kept, in addition to the data set
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    ent_coef: rl.Positive = 1.0  # initial weight of the entropy, which is learned
    n_critics: rl.Several = 5  # number of critics
    n_targets: rl.Count = 2  # number of critics, drawn for each update, whose lowest value counts
    critic_layer_norm: bool = (
        True  # LayerNorm in the critics, which bounds values of unseen actions
    )
    tau: rl.Scheduled[rl.UnitInterval] = 0.005  # Polyak averaging of the target networks; 1: copy
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    # learning rate of the policy and the entropy weight
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4
    critic_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the critics
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "critic_learning_rate": rl.log(1e-5, 1e-2),
    }

    def __post_init__(self) -> None:
        if self.n_targets > self.n_critics:
            raise ValueError(
                f"n_targets is {self.n_targets}, and there are {self.n_critics} critics; reduce it"
            )


class RLPD(rl.Algorithm[rl.Transitions]):
    """Soft actor-critic with an ensemble of normalized critics; half of each batch comes from a data set.

    The preset sets `--dataset-share 0.5`: the runner mixes the batches, so nothing here knows of a data set.
    """

    Config = RLPDConfig
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: RLPDConfig

    def build(self) -> None:
        c = self.config
        self.policy = rl.PolicyNetwork(self.spec, c.net, make=rl.squashed)
        assert isinstance(self.policy.head, rl.SquashedGaussian)
        self.head = self.policy.head
        net = replace(c.net, layer_norm=c.critic_layer_norm)
        self.critics = rl.ActionCritics(lambda: rl.ActionCritic(self.spec, net), c.n_critics)
        self.target_critics = rl.target_network(self.critics)
        self.temperature = rl.Temperature(c.ent_coef, autotune=True)
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate"
        )
        self.policy_optimizer = self.optimizer("policy", [self.policy, self.temperature])
        self.fixed_critics = rl.NoGradient(self.critics)
        self.target = rl.Target(self.critics, self.target_critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.SampleAgent:
        seeds = self.agent_seeds(rank)
        return rl.SampleAgent(self.policy, seeds, self.inference_backend, self.config.random_steps)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(self, batch: rl.Transitions, now: RLPDConfig, clock: rl.Clock) -> rl.Result:
        shape = (2, len(batch.action), prod(self.spec.action.shape or ()))
        noise, next_noise = batch.standard_normal(self.generator, shape)
        drawn = self.generator.permutation(now.n_critics)[: now.n_targets]
        members = torch.from_numpy(drawn).to(self.device)
        loss, metrics = self.critic_loss(batch, next_noise, members, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        self.target.move(now.tau)
        if rl.due(clock.updates, clock.updates + 1, now.policy_delay):
            with self.fixed_critics:
                loss, policy_metrics = self.policy_loss(batch, noise, now)
            metrics |= policy_metrics
            metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self, batch: rl.Transitions, noise: Tensor, members: Tensor, now: RLPDConfig
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error of every critic, with one soft target for all; and metrics."""
        target = self.soft_target(batch, noise, members)
        q = self.critics(batch.obs, batch.action)
        loss = batch.mean(0.5 * (q - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def soft_target(self, batch: rl.Transitions, noise: Tensor, members: Tensor) -> Tensor:
        """Return r + discount * (min over the drawn members of Q_target(s', a') - alpha * log pi(a' | s')) [B]."""
        action, log_prob = self.head.draw(self.policy(batch.next_obs), noise)
        next_q = self.target_critics(batch.next_obs, action)[members].amin(0)
        soft_value: Tensor = next_q - self.temperature.times_alpha(log_prob, 1.0)
        return batch.reward + batch.discount * soft_value

    @rl.pure
    def policy_loss(
        self, batch: rl.Transitions, noise: Tensor, now: RLPDConfig
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return alpha * log pi(a | s) - the mean of all critics, plus the loss of the temperature; and metrics."""
        action, log_prob = self.head.draw(self.policy(batch.obs), noise)
        q = self.critics(batch.obs, action).mean(0)
        target_entropy = -0.5 * float(self.head.dims)
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, 1.0, target_entropy=target_entropy
        )

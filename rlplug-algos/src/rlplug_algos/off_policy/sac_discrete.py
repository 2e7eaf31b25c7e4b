"""Soft actor-critic for discrete actions (Christodoulou, 2019, arXiv:1910.07207)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class SACDiscreteConfig(rl.Config):
    """Options of discrete SAC."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 256  # transitions per gradient step
    buffer_size: rl.Count = 1_000_000  # size of the replay buffer in transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    n_step: rl.Count = 1  # number of rewards in an n-step return
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # entropy coefficient; with autotune its initial value
    ent_coef: rl.Scheduled[rl.Positive] = 1.0
    # learn the entropy coefficient that keeps the policy at the target entropy
    autotune: bool = True
    # target entropy in nats; default: 0.98 of the largest possible one
    target_entropy: rl.Scheduled[float] | None = None
    n_critics: rl.Count = 2  # number of critics; their lowest value is used
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    # gradient steps of the critics per step of the policy and of the target networks
    policy_delay: rl.Count = 1
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
    # learning rate of the policy and the entropy coefficient
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4
    critic_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the critics
    anneal_lr: bool = False  # decrease the learning rates to 0 over the run
    # largest gradient norm of the critics, and of policy and entropy coefficient together; default: no clipping
    max_grad_norm: rl.Scheduled[rl.Positive] | None = None
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "critic_learning_rate": rl.log(1e-5, 1e-2),
        "tau": rl.log(1e-3, 0.1),
    }

    def __post_init__(self) -> None:
        if self.target_entropy is not None and not self.autotune:
            raise ValueError(
                "target_entropy needs autotune, which is off; leave target_entropy at none"
            )


class SACDiscrete(rl.Algorithm[rl.Transitions]):
    """SAC with expectations over all actions in place of samples; respects action masks."""

    Config = SACDiscreteConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: SACDiscreteConfig

    def build(self) -> None:
        c = self.config
        # Only the policy's last layer has the option output_gain.
        critic_net = replace(c.critic_net.over(c.net), output_gain=None)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(self.spec, c.net, norm=norm)
        self.critics = rl.QNetworks(
            lambda: rl.QNetwork(self.spec, critic_net, norm=critic_norm), c.n_critics
        )
        self.target_critics = rl.target_network(self.critics)
        self.temperature = rl.Temperature(
            c.ent_coef, c.autotune, scheduled="ent_coef" in c.schedules
        )
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate", defaults={"eps": 1e-8}
        )
        self.policy_optimizer = self.optimizer(
            "policy", [self.policy, self.temperature], defaults={"eps": 1e-8}
        )
        self.fixed_critics = rl.NoGradient(self.critics)
        self.target = rl.Target(self.critics, self.target_critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: SACDiscreteConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        loss, metrics = self.critic_loss(batch, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.policy_delay):
            with self.fixed_critics:
                loss, policy_metrics = self.policy_loss(batch, now)
            metrics |= policy_metrics
            metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
            self.target.move(now.tau)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        now: SACDiscreteConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error of every critic at the batch's actions, summed over critics (eq. 5)."""
        target = self.soft_target(batch, now)
        q = self.critics.values_of_actions(batch.obs, batch.action)
        loss = batch.mean(0.5 * (q - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def soft_target(
        self,
        batch: rl.Transitions,
        now: SACDiscreteConfig,
    ) -> Tensor:
        """Return r + discount * sum of pi(a' | s') (min Q_target(s', a') - alpha * log pi(a' | s')) [B] (eq. 10)."""
        next_q = self.target_critics.lowest(batch.next_obs)
        log_prob, next_q = rl.expected_of(rl.log_softmax(self.policy(batch.next_obs)), next_q)
        soft_value: Tensor = next_q - self.temperature.times_alpha(log_prob, now.ent_coef)
        return batch.reward + batch.discount * soft_value

    @rl.pure
    def policy_loss(
        self,
        batch: rl.Transitions,
        now: SACDiscreteConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of pi (alpha * log pi - min Q) (eq. 12) plus the loss of alpha (eq. 11); and metrics."""
        log_probs = rl.log_softmax(self.policy(batch.obs))
        with torch.no_grad():
            q = self.critics.lowest(batch.obs)
        log_prob, q = rl.expected_of(log_probs, q)
        target_entropy = self.target_entropy(log_probs, now)
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, now.ent_coef, target_entropy=target_entropy
        )

    def target_entropy(
        self,
        log_probs: Tensor,
        now: SACDiscreteConfig,
    ) -> float | Tensor:
        """Return the option `target_entropy`; by default 0.98 of the largest entropy of legal actions [B], in nats."""
        if now.target_entropy is not None:
            return now.target_entropy
        return 0.98 * (log_probs > rl.ILLEGAL / 2).sum(-1).float().log()

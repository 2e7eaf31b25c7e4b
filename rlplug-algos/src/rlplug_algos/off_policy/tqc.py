"""Truncated quantile critics (Kuznetsov et al., 2020, arXiv:2005.04269)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class TQCConfig(rl.Config):
    """Options of TQC."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    random_steps: rl.Natural = 1_000  # env steps at the start with uniformly random actions
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 256  # transitions per gradient step
    buffer_size: rl.Count = 1_000_000  # size of the replay buffer in transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    # hindsight goals per transition: goals that the episode reached later; 0: off
    her: rl.Natural = 0
    n_step: rl.Count = 1  # number of rewards in an n-step return
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # entropy coefficient; with autotune its initial value
    ent_coef: rl.Scheduled[rl.Positive] = 1.0
    # learn the entropy coefficient that keeps the policy at the target entropy
    autotune: bool = True
    # target entropy in nats; default: minus the number of action dimensions
    target_entropy: rl.Scheduled[float] | None = None
    n_critics: rl.Count = 2  # number of critics; the target pools their quantiles
    n_quantiles: rl.Count = 25  # quantiles of the return that each critic estimates
    # number of largest quantiles per critic that the target drops
    top_quantiles_to_drop_per_net: rl.Natural = 2
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
        if self.top_quantiles_to_drop_per_net >= self.n_quantiles:
            raise ValueError(
                f"top_quantiles_to_drop_per_net {self.top_quantiles_to_drop_per_net} drops all {self.n_quantiles} "
                "quantiles; set a lower number"
            )


class TQC(rl.Algorithm[rl.Transitions]):
    """SAC with critics that learn quantiles of the return; the target drops the largest ones."""

    Config = TQCConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: TQCConfig
    fractions: Tensor

    def build(self) -> None:
        c = self.config
        critic_net = c.critic_net.over(c.net)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(self.spec, c.net, make=rl.squashed, norm=norm)
        assert isinstance(self.policy.head, rl.SquashedGaussian)
        self.head = self.policy.head
        self.critics = rl.ActionCritics(
            lambda: rl.ActionCritic(self.spec, critic_net, critic_norm, atoms=c.n_quantiles),
            c.n_critics,
        )
        self.target_critics = rl.target_network(self.critics)
        self.temperature = rl.Temperature(
            c.ent_coef, c.autotune, scheduled="ent_coef" in c.schedules
        )
        fractions = (torch.arange(c.n_quantiles) + 0.5) / c.n_quantiles
        self.register_buffer("fractions", fractions.repeat(c.n_critics), persistent=False)
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate", defaults={"eps": 1e-8}
        )
        self.policy_optimizer = self.optimizer(
            "policy", [self.policy, self.temperature], defaults={"eps": 1e-8}
        )
        self.fixed_critics = rl.NoGradient(self.critics)
        self.target = rl.Target(self.critics, self.target_critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.SampleAgent:
        return rl.SampleAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, self.config.random_steps
        )

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: TQCConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        shape = (2, len(batch.action), prod(self.spec.action.shape or ()))
        noise, next_noise = batch.standard_normal(self.generator, shape)
        loss, metrics = self.critic_loss(batch, next_noise, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.policy_delay):
            with self.fixed_critics:
                loss, policy_metrics = self.policy_loss(batch, noise, now)
            metrics |= policy_metrics
            metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
            self.target.move(now.tau)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: TQCConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean quantile Huber loss of all quantiles of all critics (eq. 12, 13); and metrics."""
        quantiles = self.critics.pooled(batch.obs, batch.action)
        target = self.truncated_target(batch, noise, now)
        loss = batch.mean(rl.quantile_huber(quantiles, self.fractions, target) / quantiles.shape[1])
        return loss, {
            "loss/value": loss.detach(),
            "loss/q_mean": batch.mean(quantiles.detach().mean(1)),
        }

    @torch.no_grad()
    def truncated_target(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: TQCConfig,
    ) -> Tensor:
        """Return r + discount * (z - alpha * log pi(a' | s')) [B, k] for the k smallest pooled quantiles z (eq. 11)."""
        action, log_prob = self.head.draw(self.policy(batch.next_obs), noise)
        ordered = self.target_critics.pooled(batch.next_obs, action).sort(1).values
        lowest = ordered[:, : now.n_critics * (now.n_quantiles - now.top_quantiles_to_drop_per_net)]
        soft: Tensor = lowest - self.temperature.times_alpha(log_prob, now.ent_coef)[:, None]
        return batch.reward[:, None] + batch.discount[:, None] * soft

    @rl.pure
    def policy_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: TQCConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return alpha * log pi(a | s) - mean Z(s, a) (eq. 14) plus the loss of alpha (eq. 18); and metrics."""
        action, log_prob = self.head.draw(self.policy(batch.obs), noise)
        q = self.critics.pooled(batch.obs, action).mean(1)
        target_entropy = (
            -float(self.head.dims) if now.target_entropy is None else now.target_entropy
        )
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, now.ent_coef, target_entropy=target_entropy
        )

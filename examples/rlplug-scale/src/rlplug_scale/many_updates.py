"""REDQ (arXiv:2101.05982), DroQ (arXiv:2110.02034), and SAC with the networks of SimBa (arXiv:2410.09754)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

import rlplug_core as rl
from rlplug_scale.critics import DropoutCritic, DropoutCritics


@dataclass(frozen=True)
class REDQConfig(rl.Config):
    """Options of REDQ."""

    learning_starts: rl.Count = 5_000  # env steps before the first gradient step
    random_steps: rl.Natural = 5_000  # first env steps, with uniformly random actions
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 20  # gradient steps of the critics per update
    policy_delay: rl.Count = 20  # gradient steps of the critics per step of the policy
    batch_size: rl.Count = 256  # transitions per gradient step
    buffer_size: rl.Count = 1_000_000  # size of the replay buffer in transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    ent_coef: rl.Positive = 1.0  # initial weight of the entropy, which is learned
    # target entropy in nats; default: minus the number of action dimensions
    target_entropy: rl.Scheduled[float] | None = None
    n_critics: rl.Count = 10  # number of critics
    n_targets: rl.Count = 2  # number of critics, drawn for each update, whose lowest value counts
    dropout: rl.Fraction = 0.0  # probability that an update leaves out a hidden unit of a critic
    critic_layer_norm: bool = False  # LayerNorm in the critics
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
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
        if self.dropout == 1:
            raise ValueError("dropout is 1, which leaves out all hidden units; reduce it")


@dataclass(frozen=True)
class DroQConfig(REDQConfig):
    """Options of DroQ."""

    n_critics: rl.Count = 2  # number of critics
    dropout: rl.Fraction = 0.01  # probability that an update leaves out a hidden unit of a critic
    critic_layer_norm: bool = True  # LayerNorm in the critics


@dataclass(frozen=True)
class SimbaSACConfig(REDQConfig):
    """Options of SAC with the networks of SimBa: residual blocks and normalized observations."""

    gradient_steps: rl.Count = 2  # gradient steps of the critics per update
    policy_delay: rl.Count = 1  # gradient steps of the critics per step of the policy
    n_critics: rl.Count = 2  # number of critics
    net: rl.Net = rl.Net(hidden=(), activation="relu", factory="simba", normalize_obs=True)
    critic_net: rl.CriticNet = rl.CriticNet(factory="simba:width=512,blocks=2")
    # learning rate of the policy and the entropy weight
    learning_rate: rl.Scheduled[rl.Positive] = 1e-4
    critic_learning_rate: rl.Scheduled[rl.Positive] = 1e-4  # learning rate of the critics
    optimizer: rl.OptimizerName = "adamw"  # optimizer of policy and critics


class ManyUpdates(rl.Algorithm[rl.Transitions]):
    """Soft actor-critic with many gradient steps per env step, from a few critics of an ensemble."""

    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: REDQConfig

    def build(self) -> None:
        c = self.config
        critic_net = c.critic_net.over(c.net)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(self.spec, c.net, make=rl.squashed, norm=norm)
        assert isinstance(self.policy.head, rl.SquashedGaussian)
        self.head = self.policy.head
        critic_net = replace(critic_net, layer_norm=c.critic_layer_norm or critic_net.layer_norm)
        self.critic_units = sum(critic_net.hidden)
        self.critics = DropoutCritics(
            lambda: DropoutCritic(self.spec, critic_net, critic_norm), c.n_critics
        )
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

    def learn(self, batch: rl.Transitions, now: REDQConfig, clock: rl.Clock) -> rl.Result:
        shape = (2, len(batch.action), prod(self.spec.action.shape or ()))
        noise, next_noise = batch.standard_normal(self.generator, shape)
        members = self.members(now)
        masks = self.masks(len(batch.action), now, uses=2)
        loss, metrics = self.critic_loss(batch, next_noise, members, masks, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        self.target.move(now.tau)
        if rl.due(clock.updates, clock.updates + 1, now.policy_delay):
            (mask,) = self.masks(len(batch.action), now, uses=1)
            with self.fixed_critics:
                loss, policy_metrics = self.policy_loss(batch, noise, mask, now)
            metrics |= policy_metrics
            metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        return rl.Result(metrics)

    def members(self, now: REDQConfig) -> Tensor:
        """Draw the numbers [n_targets] of different critics, uniformly."""
        drawn = self.generator.permutation(now.n_critics)[: now.n_targets]
        return torch.from_numpy(drawn).to(self.device)

    def masks(self, rows: int, now: REDQConfig, uses: int) -> Sequence[Tensor | None]:
        """Draw a mask [n, B, H] for each use of the critics: 0, or 1 / (1 - dropout); None without dropout."""
        if now.dropout == 0:
            return [None] * uses
        shape = (uses, now.n_critics, rows, self.critic_units)
        kept = self.generator.random(shape, dtype=np.float32) >= now.dropout
        return (torch.from_numpy(kept).to(self.device) / (1 - now.dropout)).unbind()

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        members: Tensor,
        masks: Sequence[Tensor | None],
        now: REDQConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error of every critic, with one soft target for all; and metrics.

        The masks are those of the target critics, then those of the critics.
        """
        target = self.soft_target(batch, noise, members, masks[0])
        q = self.critics(batch.obs, batch.action, masks[1])
        loss = batch.mean(0.5 * (q - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def soft_target(
        self, batch: rl.Transitions, noise: Tensor, members: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Return r + discount * (min over the drawn members of Q_target(s', a') - alpha * log pi(a' | s')) [B]."""
        action, log_prob = self.head.draw(self.policy(batch.next_obs), noise)
        next_q = self.target_critics(batch.next_obs, action, mask)[members].amin(0)
        soft_value: Tensor = next_q - self.temperature.times_alpha(log_prob, 1.0)
        return batch.reward + batch.discount * soft_value

    @rl.pure
    def policy_loss(
        self, batch: rl.Transitions, noise: Tensor, mask: Tensor | None, now: REDQConfig
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return alpha * log pi(a | s) - the mean of all critics, plus the loss of the temperature; and metrics."""
        action, log_prob = self.head.draw(self.policy(batch.obs), noise)
        q = self.critics(batch.obs, action, mask).mean(0)
        target_entropy = (
            -float(self.head.dims) if now.target_entropy is None else now.target_entropy
        )
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, 1.0, target_entropy=target_entropy
        )


class REDQ(ManyUpdates):
    """Randomized ensembled double Q-learning: the lowest of a few random critics of ten is the target."""

    Config = REDQConfig


class DroQ(ManyUpdates):
    """Two critics with dropout and LayerNorm take the place of the ensemble."""

    Config = DroQConfig


class SimbaSAC(ManyUpdates):
    """Two critics and a policy of residual blocks with LayerNorm, for normalized observations."""

    Config = SimbaSACConfig

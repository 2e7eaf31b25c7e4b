"""CrossQ: batch renormalization in place of target networks (Bhatt et al., 2024, arXiv:1902.05605)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class CrossQConfig(rl.Config):
    """Options of CrossQ."""

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
    n_critics: rl.Count = 2  # number of critics; their lowest value is used
    policy_delay: rl.Count = 3  # gradient steps of the critics per step of the policy
    # gradient steps at the start that use plain batch normalization
    renorm_warmup: rl.Natural = 100_000
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    # network of the critics; the paper has layers of 2048
    critic_net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    # learning rate of the policy and the entropy coefficient
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3
    critic_learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the critics
    anneal_lr: bool = False  # decrease the learning rates to 0 over the run
    # largest gradient norm of each optimizer; default: no clipping
    max_grad_norm: rl.Scheduled[rl.Positive] | None = None
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "critic_learning_rate": rl.log(1e-5, 1e-2),
    }

    def __post_init__(self) -> None:
        if self.target_entropy is not None and not self.autotune:
            raise ValueError(
                "target_entropy needs autotune, which is off; leave target_entropy at none"
            )


class CrossQ(rl.Algorithm[rl.Transitions]):
    """SAC without target networks: critics normalize both observations of a transition in one batch."""

    Config = CrossQConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: CrossQConfig

    def build(self) -> None:
        c = self.config
        self.policy = rl.RenormPolicy(self.spec, c.net, c.renorm_warmup)
        assert isinstance(self.policy.head, rl.SquashedGaussian)
        self.head = self.policy.head
        critic_net = replace(c.critic_net, obs=c.critic_net.obs or c.net.obs)
        self.critics = rl.Ensemble(
            lambda: rl.RenormCritic(self.spec, critic_net, c.renorm_warmup), c.n_critics
        )
        self.temperature = rl.Temperature(
            c.ent_coef, c.autotune, scheduled="ent_coef" in c.schedules
        )
        self.to(self.device)
        adam = {"betas": (0.5, 0.999), "eps": 1e-8}
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate", defaults=adam
        )
        self.policy_optimizer = self.optimizer("policy", [self.policy], defaults=adam)
        # Only the entropy coefficient has Adam's usual betas, as in the authors' code.
        if c.autotune:
            self.temperature_optimizer = self.optimizer(
                "temperature", [self.temperature], defaults={"eps": 1e-8}
            )
        self.fixed_critics = rl.NoGradient(self.critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.SampleAgent:
        return rl.SampleAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, self.config.random_steps
        )

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: CrossQConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        shape = (2, len(batch.action), prod(self.spec.action.shape or ()))
        noise, next_noise = batch.standard_normal(self.generator, shape)
        loss, metrics, moments = self.critic_loss(batch, next_noise, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        # Before the policy's loss: the authors' code evaluates the new critics with the new moments.
        rl.update_moments(self.critics, moments)
        if rl.due(clock.updates, clock.updates + 1, now.policy_delay):
            with self.fixed_critics:
                loss, policy_metrics, moments = self.policy_loss(batch, noise, now)
            norm = self.policy_optimizer.minimize(loss, clock)
            metrics |= {**policy_metrics, "loss/policy_gradient_norm": norm}
            rl.update_moments(self.policy, moments)
            if now.autotune:
                loss = self.temperature_loss(policy_metrics["loss/entropy"], now)
                self.temperature_optimizer.minimize(loss, clock)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: CrossQConfig,
    ) -> tuple[Tensor, dict[str, Tensor], rl.Moments]:
        """Return half the squared error with Q(s, a), Q(s', a') of one forward pass (section 3.1); metrics; moments."""
        with torch.no_grad():
            action, log_prob = self.head.draw(self.policy(batch.next_obs), noise)
        obs = rl.tree_map(
            lambda obs, next_obs: torch.cat([obs, next_obs]), batch.obs, batch.next_obs
        )
        actions = torch.cat([batch.action.reshape(action.shape), action])
        # Terminal states have no value, so they do not count in the moments.
        weight = torch.cat([batch.weight, batch.weight * (batch.discount > 0)])
        moments: rl.Moments = []
        q, next_q = self.critics(obs, actions, weight, moments).chunk(2, 1)
        target = batch.reward + batch.discount * (
            next_q.detach().amin(0) - self.temperature(now.ent_coef) * log_prob
        )
        loss = batch.mean(0.5 * (q - target).square().sum(0))
        return (
            loss,
            {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))},
            moments,
        )

    @rl.pure
    def policy_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: CrossQConfig,
    ) -> tuple[Tensor, dict[str, Tensor], rl.Moments]:
        """Return SAC's loss, with batch moments in the policy and running moments in the critics; metrics; moments."""
        moments: rl.Moments = []
        action, log_prob = self.head.draw(self.policy(batch.obs, batch.weight, moments), noise)
        q = self.critics(batch.obs, action).amin(0)
        loss, metrics = rl.soft_policy_loss(
            batch,
            log_prob,
            q,
            self.temperature,
            now.ent_coef,
            target_entropy=self.target_entropy(now),
        )
        return loss, metrics, moments

    @rl.pure
    def temperature_loss(self, entropy: Tensor, now: CrossQConfig) -> Tensor:
        """Return the loss of alpha (Haarnoja et al., 2018, eq. 18) at the policy's mean entropy []."""
        return self.temperature.loss(-entropy, self.target_entropy(now)).sum()

    def target_entropy(self, now: CrossQConfig) -> float:
        """Return the option `target_entropy`; by default minus the number of action dimensions, in nats."""
        return -float(self.head.dims) if now.target_entropy is None else now.target_entropy

"""Deep deterministic policy gradient (Lillicrap et al., 2016, arXiv:1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class DDPGConfig(rl.Config):
    """Options of DDPG."""

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
    # noise added to actions to explore
    action_noise: Literal["gaussian", "ornstein-uhlenbeck"] = "gaussian"
    # standard deviation of Gaussian noise; for Ornstein-Uhlenbeck noise, that of each step's change
    noise_sigma: rl.Scheduled[rl.NonNegative] = 0.1
    # decay of Ornstein-Uhlenbeck noise per step; default: 0.15
    noise_theta: rl.Scheduled[rl.Fraction] | None = None
    n_critics: rl.Count = 1  # number of critics; their lowest value is used
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    # gradient steps of the critics per step of the policy and of the target networks
    policy_delay: rl.Count = 1
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the policy
    critic_learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the critics
    anneal_lr: bool = False  # decrease the learning rates to 0 over the run
    # largest gradient norm; default: no clipping
    max_grad_norm: rl.Scheduled[rl.Positive] | None = None
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "critic_learning_rate": rl.log(1e-5, 1e-2),
        "tau": rl.log(1e-3, 0.1),
    }

    def __post_init__(self) -> None:
        if self.noise_theta is not None and self.action_noise == "gaussian":
            raise ValueError(
                "noise_theta is the decay of Ornstein-Uhlenbeck noise, but action_noise is gaussian; give "
                "--action-noise ornstein-uhlenbeck, or leave noise_theta at none"
            )


class DDPG(rl.Algorithm[rl.Transitions]):
    """Trains a deterministic policy to maximize the critic's value of its actions."""

    Config = DDPGConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: DDPGConfig

    def build(self) -> None:
        c = self.config
        critic_net = c.critic_net.over(c.net)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.DeterministicPolicy(self.spec, c.net, norm)
        self.critics = rl.ActionCritics(
            lambda: rl.ActionCritic(self.spec, critic_net, critic_norm), c.n_critics
        )
        self.target_policy = rl.target_network(self.policy)
        self.target_critics = rl.target_network(self.critics)
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate", defaults={"eps": 1e-8}
        )
        self.policy_optimizer = self.optimizer("policy", [self.policy], defaults={"eps": 1e-8})
        self.fixed_critics = rl.NoGradient(self.critics)
        self.targets = [
            rl.Target(self.policy, self.target_policy),
            rl.Target(self.critics, self.target_critics),
        ]

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.NoiseAgent:
        c = self.config
        theta = None if c.noise_theta is None else self.schedule("noise_theta")
        noise = rl.action_noise(c.action_noise, self.schedule("noise_sigma"), theta)
        return rl.NoiseAgent(
            self.policy, noise, self.agent_seeds(rank), self.inference_backend, c.random_steps
        )

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: DDPGConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        loss, metrics = self.critic_loss(batch, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        if rl.due(clock.updates, clock.updates + 1, now.policy_delay):
            with self.fixed_critics:
                loss = self.policy_loss(batch)
            metrics["loss/policy"] = loss.detach()
            metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
            for target in self.targets:
                target.move(now.tau)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        now: DDPGConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error of every critic, with one target for all (algorithm 1)."""
        target = self.td_target(batch)
        q = self.critics(batch.obs, batch.action)
        loss = batch.mean(0.5 * (q - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def td_target(self, batch: rl.Transitions) -> Tensor:
        """Return r + discount * min Q_target(s', a') [B] for the target policy's action a'."""
        action = self.target_policy(batch.next_obs)
        return batch.reward + batch.discount * self.target_critics.lowest(batch.next_obs, action)

    @rl.pure
    def policy_loss(self, batch: rl.Transitions) -> Tensor:
        """Return -Q(s, policy(s)) of the first critic (eq. 6)."""
        return -batch.mean(self.critics[0](batch.obs, self.policy(batch.obs)))

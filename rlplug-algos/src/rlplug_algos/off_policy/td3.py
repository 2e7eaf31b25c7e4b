"""Twin delayed deterministic policy gradient, TD3 (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class TD3Config(rl.Config):
    """Options of TD3."""

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
    # standard deviation of Gaussian noise in the last environment; then noise_sigma is that of the first, and those of
    # the others are evenly spaced; default: noise_sigma in all environments
    noise_sigma_max: rl.Scheduled[rl.NonNegative] | None = None
    # decay of Ornstein-Uhlenbeck noise per step; default: 0.15
    noise_theta: rl.Scheduled[rl.Fraction] | None = None
    # standard deviation of noise on target actions
    target_policy_noise: rl.Scheduled[rl.NonNegative] = 0.2
    # largest absolute value of the noise on target actions
    target_noise_clip: rl.Scheduled[rl.NonNegative] = 0.5
    n_critics: rl.Count = 2  # number of critics; their lowest value is used
    # number of atoms, such as 101, if critics predict distributions of returns, as in c51; default: they predict means
    n_atoms: rl.Several | None = None
    v_min: float = -250.0  # with n_atoms: smallest return, the first atom
    v_max: float = 250.0  # with n_atoms: largest return, the last atom
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    # gradient steps of the critics per step of the policy and of the target networks
    policy_delay: rl.Count = 2
    # memory that feeds policy and critics: gru, lstm, a plugin's id, or ./mine.py:Mine; with options: gru:units=128
    memory: rl.Importable | None = None
    # with a memory, steps of a sequence that train the networks; default: 20
    sequence_length: rl.Count | None = None
    # with a memory, earlier steps of a sequence that only warm up the recurrent state; default: 10
    burn_in: rl.Natural | None = None
    # with a memory, steps between the starts of sequences; default: half of sequence_length
    sequence_period: rl.Count | None = None
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the policy
    critic_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the critics
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
        rl.check_atoms(self.v_min, self.v_max)
        rl.check_no_sequences(self.memory, self.sequence_length, self.burn_in, self.sequence_period)
        if self.noise_theta is not None and self.action_noise == "gaussian":
            raise ValueError(
                "noise_theta is the decay of Ornstein-Uhlenbeck noise, but action_noise is gaussian; give "
                "--action-noise ornstein-uhlenbeck, or leave noise_theta at none"
            )
        if self.noise_sigma_max is not None and self.action_noise != "gaussian":
            raise ValueError(
                "noise_sigma_max is for Gaussian noise, and action_noise is ornstein-uhlenbeck; give "
                "--action-noise gaussian, or leave noise_sigma_max at none"
            )


class TD3(rl.Algorithm[rl.Transitions]):
    """DDPG with the minimum of two critics, target smoothing and delayed policy updates."""

    Config = TD3Config
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: TD3Config

    def build(self) -> None:
        c = self.config
        trunk = rl.memory_trunk(self.spec, c.net, c.memory, c.burn_in, c.critic_net)
        norm, critic_norm = rl.observation_norms(trunk.spec.obs, trunk.net, trunk.critic_net)
        self.policy = rl.DeterministicPolicy(trunk.spec, trunk.net, norm)
        self.policy.trunk = rl.policy_trunk(self.spec, c.net, c.memory, c.burn_in, c.critic_net)
        self.critics = rl.action_critics(
            lambda: rl.ActionCritic(trunk.spec, trunk.critic_net, critic_norm, atoms=c.n_atoms),
            c.n_critics,
            trunk,
            bounds=None if c.n_atoms is None else (c.v_min, c.v_max),
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

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.Agent:
        c = self.config
        theta = None if c.noise_theta is None else self.schedule("noise_theta")
        highest = None if c.noise_sigma_max is None else self.schedule("noise_sigma_max")
        noise = rl.action_noise(c.action_noise, self.schedule("noise_sigma"), theta, highest)
        agent = rl.NoiseAgent(
            self.policy, noise, self.agent_seeds(rank), self.inference_backend, c.random_steps
        )
        return rl.trunk_agent(self.policy.trunk or self.critics.trunk, agent)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: TD3Config,
        clock: rl.Clock,
    ) -> rl.Result:
        shape = (len(batch.action), prod(self.spec.action.shape or ()))
        noise = batch.standard_normal(self.generator, shape)
        loss, metrics = self.critic_loss(batch, noise, now)
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
        noise: Tensor,
        now: TD3Config,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error of every critic, with one target for all (algorithm 1)."""
        if isinstance(self.critics, rl.CategoricalCritics):
            next_action = self.target_action(batch, noise, now)
            return rl.categorical_critic_loss(
                self.critics, self.target_critics, batch, next_action, batch.reward
            )
        target = self.td_target(batch, noise, now)
        q = self.critics(self.critics.obs(batch), batch.action)
        loss = batch.mean(0.5 * (q - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def td_target(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: TD3Config,
    ) -> Tensor:
        """Return r + discount * min Q_target(s', a') [B]."""
        next_obs = self.target_critics.next_obs(batch)
        action = self.target_action(batch, noise, now)
        return batch.reward + batch.discount * self.target_critics.lowest(next_obs, action)

    @torch.no_grad()
    def target_action(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: TD3Config,
    ) -> Tensor:
        """Return a' [B, d]: the target policy's action plus clipped noise (section 5.3)."""
        noise = (now.target_policy_noise * noise).clip(
            -now.target_noise_clip, now.target_noise_clip
        )
        policy_obs = (self.target_policy.trunk or self.target_critics).next_obs(batch)
        action: Tensor = self.target_policy(policy_obs) + noise
        return action.clip(-1, 1)

    @rl.pure
    def policy_loss(self, batch: rl.Transitions) -> Tensor:
        """Return -Q(s, policy(s)) of the first critic (section 3); with atoms, of the lowest."""
        obs = self.critics.obs(batch)
        action = self.policy(self.policy.trunk.obs(batch) if self.policy.trunk else obs)
        if isinstance(self.critics, rl.CategoricalCritics):
            return -batch.mean(self.critics.lowest(obs, action))
        return -batch.mean(self.critics[0](obs, action))

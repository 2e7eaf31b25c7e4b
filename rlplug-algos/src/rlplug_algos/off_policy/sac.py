"""Soft actor-critic with a learned entropy coefficient (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class SACConfig(rl.Config):
    """Options of SAC."""

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
    # number of atoms, such as 101, if critics predict distributions of returns, as in c51; default: they predict means
    n_atoms: rl.Several | None = None
    v_min: float = -250.0  # with n_atoms: smallest return, the first atom
    v_max: float = 250.0  # with n_atoms: largest return, the last atom
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    # gradient steps of the critics per step of the policy and of the target networks
    policy_delay: rl.Count = 1
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
        rl.check_atoms(self.v_min, self.v_max)
        rl.check_no_sequences(self.memory, self.sequence_length, self.burn_in, self.sequence_period)
        if self.target_entropy is not None and not self.autotune:
            raise ValueError(
                "target_entropy needs autotune, which is off; leave target_entropy at none"
            )


class SAC(rl.Algorithm[rl.Transitions]):
    """Trains a stochastic policy to maximize return plus entropy; the critics predict the sum of both.

    In the equations alpha is the entropy coefficient, which `temperature` learns or gets from the option `ent_coef`.

    A subclass can override `values`, `next_value`, `policy_value` and `target_entropy`, which are parts of the losses.
    They must not draw random numbers. If they need some, override `learn`: add the numbers to `batch.extras`, then call
    `super().learn`.
    """

    Config = SACConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    data_parallel: ClassVar[bool] = True
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    #: Whether the target critics move at each gradient step, or only together with the policy.
    moves_targets_each_step: ClassVar[bool] = False
    config: SACConfig

    def build(self) -> None:
        c = self.config
        # The trunk makes the inputs of the networks: the features of a memory, or the observations if there is none.
        trunk = rl.memory_trunk(self.spec, c.net, c.memory, c.burn_in, c.critic_net)
        norm, critic_norm = rl.observation_norms(trunk.spec.obs, trunk.net, trunk.critic_net)
        self.policy = rl.PolicyNetwork(trunk.spec, trunk.net, make=rl.squashed, norm=norm)
        # If the options of the critics differ, the policy has its own memory; else it uses the memory of the critics.
        self.policy.trunk = rl.policy_trunk(self.spec, c.net, c.memory, c.burn_in, c.critic_net)
        assert isinstance(self.policy.head, rl.SquashedGaussian)
        self.head = self.policy.head
        self.critics = rl.action_critics(
            lambda: rl.ActionCritic(trunk.spec, trunk.critic_net, critic_norm, atoms=c.n_atoms),
            c.n_critics,
            trunk,
            bounds=None if c.n_atoms is None else (c.v_min, c.v_max),
        )
        self.target_critics = rl.target_network(self.critics)
        self.temperature = rl.Temperature(c.ent_coef, c.autotune, "ent_coef" in c.schedules)
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate", defaults={"eps": 1e-8}
        )
        modules = [self.policy, self.temperature]
        self.policy_optimizer = self.optimizer("policy", modules, defaults={"eps": 1e-8})
        self.fixed_critics = rl.NoGradient(self.critics)
        self.target = rl.Target(self.critics, self.target_critics)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.Agent:
        agent = rl.SampleAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, self.config.random_steps
        )
        return rl.trunk_agent(self.policy.trunk or self.critics.trunk, agent)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: SACConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        """Take a step of the critics, then perhaps one of the policy. `now` is the config with current values."""
        shape = (2, len(batch.action), prod(self.spec.action.shape or ()))
        noise, next_noise = batch.standard_normal(self.generator, shape)
        loss, metrics = self.critic_loss(batch, next_noise, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        policy_is_due = rl.due(clock.updates, clock.updates + 1, now.policy_delay)
        if policy_is_due:
            # The policy's loss needs the gradient of the critics with respect to the action, not to their weights.
            with self.fixed_critics:
                loss, policy_metrics = self.policy_loss(batch, noise, now)
            metrics |= policy_metrics
            metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        if policy_is_due or self.moves_targets_each_step:
            self.target.move(now.tau)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: SACConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error to one soft target (eq. 5), summed over critics; and metrics."""
        if isinstance(self.critics, rl.CategoricalCritics):
            return self.categorical_loss(self.critics, batch, noise, now)
        q = self.values(batch, self.critics.obs(batch), batch.action)
        loss = batch.mean(0.5 * (q - self.soft_target(batch, noise, now)).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    def categorical_loss(
        self,
        critics: rl.CategoricalCritics,
        batch: rl.Transitions,
        noise: Tensor,
        now: SACConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of critics that predict distributions of returns; and metrics.

        Each reward includes the discounted entropy of the next action.
        """
        with torch.no_grad():
            action, log_prob = self.head.draw(self.policy(self.next_policy_obs(batch)), noise)
            penalty = batch.discount * self.temperature.times_alpha(log_prob, now.ent_coef)
        return rl.categorical_critic_loss(
            critics, self.target_critics, batch, action, batch.reward - penalty
        )

    def next_policy_obs(self, batch: rl.Transitions) -> rl.Obs:
        """Return the policy's input in the next state of each transition."""
        return (self.policy.trunk or self.critics).next_obs(batch)

    @torch.no_grad()
    def soft_target(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: SACConfig,
    ) -> Tensor:
        """Return r + discount * (min Q_target(s', a') - alpha * log pi(a' | s')) [B] with a sampled a' (eq. 3, 5)."""
        action, log_prob = self.head.draw(self.policy(self.next_policy_obs(batch)), noise)
        next_q = self.next_value(batch, self.target_critics.next_obs(batch), action)
        soft_value: Tensor = next_q - self.temperature.times_alpha(log_prob, now.ent_coef)
        return batch.reward + batch.discount * soft_value

    @rl.pure
    def policy_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: SACConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return alpha * log pi(a | s) - min Q(s, a) (eq. 7) plus the loss of alpha (eq. 18); and metrics."""
        obs = self.critics.obs(batch)
        policy_obs = self.policy.trunk.obs(batch) if self.policy.trunk else obs
        action, log_prob = self.head.draw(self.policy(policy_obs), noise)
        q = self.policy_value(batch, obs, action)
        target_entropy = self.target_entropy(now)
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, now.ent_coef, target_entropy=target_entropy
        )

    def values(
        self,
        batch: rl.Transitions,
        obs: rl.Obs,
        action: Tensor,
    ) -> Tensor:
        """Return Q(s, a) of all n critics [n, B]; the critics' loss compares them with the soft target.

        Args:
            batch: B transitions, with their extras.
            obs: [B, ...] inputs of the critics: the batch's observations, or the features of a memory.
            action: [B, ...] actions in [-1, 1].
        """
        return self.critics(obs, action)

    def next_value(
        self,
        batch: rl.Transitions,
        obs: rl.Obs,
        action: Tensor,
    ) -> Tensor:
        """Return the value [B] of the next actions for the soft target: the lowest of all target critics."""
        return self.target_critics.lowest(obs, action)

    def policy_value(
        self,
        batch: rl.Transitions,
        obs: rl.Obs,
        action: Tensor,
    ) -> Tensor:
        """Return the value [B] that the policy maximizes: the lowest of all critics."""
        return self.critics.lowest(obs, action)

    def target_entropy(self, now: SACConfig) -> float:
        """Return the option `target_entropy`; by default minus the number of action dimensions, in nats."""
        return -float(self.head.dims) if now.target_entropy is None else now.target_entropy

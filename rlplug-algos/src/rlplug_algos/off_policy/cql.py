"""Conservative Q-learning on soft actor-critic, for data sets (Kumar et al., 2020, arXiv:2006.04779)."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class CQLConfig(rl.Config):
    """Options of CQL."""

    # env steps before the first gradient step; not used offline
    learning_starts: rl.Count = 1_000
    random_steps: rl.Natural = 1_000  # env steps at the start with uniformly random actions
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 256  # transitions per gradient step
    # size of the replay buffer in transitions, in addition to a data set
    buffer_size: rl.Count = 1_000_000
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # weight of the term that lowers the values of actions that are not in the data
    conservative_weight: rl.Scheduled[rl.NonNegative] = 5.0
    # number of uniformly random actions, and of actions of the policy, that estimate this term
    n_action_samples: rl.Count = 10
    # updates at the start that train the policy to imitate the data (behavior cloning)
    bc_steps: rl.Natural = 0
    soft_q_backup: bool = False  # include the entropy in the critics' targets, as sac does
    # entropy coefficient; with autotune its initial value
    ent_coef: rl.Scheduled[rl.Positive] = 1.0
    # learn the entropy coefficient that keeps the policy at the target entropy
    autotune: bool = True
    # target entropy in nats; default: minus the number of action dimensions
    target_entropy: rl.Scheduled[float] | None = None
    n_critics: rl.Count = 2  # number of critics; their lowest value is used
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
    # learning rate of the policy and the entropy coefficient
    learning_rate: rl.Scheduled[rl.Positive] = 1e-4
    critic_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the critics
    anneal_lr: bool = False  # decrease the learning rates to 0 over the run
    # largest gradient norm of the critics, and of policy and entropy coefficient together; default: no clipping
    max_grad_norm: rl.Scheduled[rl.Positive] | None = None
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {"learning_rate": rl.log(1e-5, 1e-2), "conservative_weight": rl.log(0.1, 20)}

    def __post_init__(self) -> None:
        if self.target_entropy is not None and not self.autotune:
            raise ValueError(
                "target_entropy needs autotune, which is off; leave target_entropy at none"
            )


class CQL(rl.Algorithm[rl.Transitions]):
    """SAC with critics that give low values to actions outside the data."""

    Config = CQLConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: CQLConfig

    def build(self) -> None:
        c = self.config
        critic_net = c.critic_net.over(c.net)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(self.spec, c.net, make=rl.squashed, norm=norm)
        assert isinstance(self.policy.head, rl.SquashedGaussian)
        self.head = self.policy.head
        self.critics = rl.ActionCritics(
            lambda: rl.ActionCritic(self.spec, critic_net, critic_norm), c.n_critics
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

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.SampleAgent:
        return rl.SampleAgent(
            self.policy, self.agent_seeds(rank), self.inference_backend, self.config.random_steps
        )

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: CQLConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        size = len(batch.action)
        dims = self.head.dims
        n = now.n_action_samples
        noise, next_noise = batch.standard_normal(self.generator, (2, size, dims))
        sample_noise = batch.standard_normal(self.generator, (size, n, dims))
        uniform = (
            2 * torch.from_numpy(self.generator.random((size, n, dims), "float32")).to(self.device)
            - 1
        )
        loss, metrics = self.critic_loss(batch, next_noise, sample_noise, uniform, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        with self.fixed_critics:
            loss, policy_metrics = self.policy_loss(
                batch, noise, now, imitates=clock.updates < now.bc_steps
            )
        metrics |= policy_metrics
        metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        self.target.move(now.tau)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        sample_noise: Tensor,
        uniform: Tensor,
        now: CQLConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return conservative_weight * (log sum_a exp Q(s, a) - Q(s, a_data)) + half the squared error (eq. 4)."""
        target = self.backup(batch, noise, now)
        q = self.critics(batch.obs, batch.action)
        gap = self.log_sum_exp(batch, sample_noise, uniform) - q
        error = 0.5 * (q - target).square().sum(0)
        loss = batch.mean(now.conservative_weight * gap.sum(0) + error)
        metrics = {
            "loss/value": batch.mean(error.detach()),
            "loss/conservative": batch.mean(gap.detach().mean(0)),
        }
        return loss, {**metrics, "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def backup(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: CQLConfig,
    ) -> Tensor:
        """Return r + discount * Q_target(s', a') [B] with a sampled a'.

        With `soft_q_backup`, Q_target(s', a') - alpha * log pi(a' | s') replaces Q_target(s', a').
        """
        action, log_prob = self.head.draw(self.policy(batch.next_obs), noise)
        next_q = self.target_critics.lowest(batch.next_obs, action)
        if now.soft_q_backup:
            next_q = next_q - self.temperature.times_alpha(log_prob, now.ent_coef)
        return batch.reward + batch.discount * next_q

    def log_sum_exp(
        self,
        batch: rl.Transitions,
        sample_noise: Tensor,
        uniform: Tensor,
    ) -> Tensor:
        """Return the log of the integral of exp Q(s, a) over actions [critics, B], by importance sampling (appendix F).

        Args:
            sample_noise: [B, n, dims] standard normal noise for actions of the policy.
            uniform: [B, n, dims] actions from -1 to 1.
        """
        size, n, dims = uniform.shape
        with torch.no_grad():
            action, log_prob = self.head.draw(
                self.policy(batch.obs).repeat_interleave(n, 0), sample_noise.flatten(0, 1)
            )
        actions = torch.cat([uniform, action.reshape(uniform.shape)], 1).reshape(-1, dims)
        obs = rl.tree_map(lambda rows: rows.repeat_interleave(2 * n, 0), batch.obs)
        density = torch.cat(
            [torch.full_like(uniform[..., 0], -dims * log(2)), log_prob.reshape(size, n)], 1
        )
        q = self.critics(obs, actions).reshape(-1, size, 2 * n)
        return (q - density).logsumexp(2) - log(2 * n)

    @rl.pure
    def policy_loss(
        self,
        batch: rl.Transitions,
        noise: Tensor,
        now: CQLConfig,
        imitates: bool,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return SAC's loss; with `imitates`, log pi(a_data | s) replaces Q, as in the authors' code."""
        outputs = self.policy(batch.obs)
        action, log_prob = self.head.draw(outputs, noise)
        q = (
            self.head.log_prob(outputs, batch.action)
            if imitates
            else self.critics.lowest(batch.obs, action)
        )
        target_entropy = (
            -float(self.head.dims) if now.target_entropy is None else now.target_entropy
        )
        return rl.soft_policy_loss(
            batch, log_prob, q, self.temperature, now.ent_coef, target_entropy=target_entropy
        )

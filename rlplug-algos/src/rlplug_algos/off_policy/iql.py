"""Implicit Q-learning, for data sets (Kostrikov et al., 2021, arXiv:2110.06169)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

import rlplug_core as rl
from rlplug_core.nets.heads.gaussian import LogStd

#: Bounds of the log standard deviation. Without a bound it would decrease forever if an action is the same in all data,
#: and gradients for other actions would become huge.
LOG_STD = (-5.0, 2.0)


@dataclass(frozen=True)
class IQLConfig(rl.Config):
    """Options of IQL."""

    # env steps before the first gradient step; not used offline
    learning_starts: rl.Count = 1_000
    train_freq: rl.Count = 1  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 256  # transitions per gradient step
    # size of the replay buffer in transitions, in addition to a data set
    buffer_size: rl.Count = 1_000_000
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # expectile of the values of the data's actions; 0.5 is their mean, 1 their maximum
    expectile: rl.Scheduled[rl.UnitInterval] = 0.7
    # how strongly the policy prefers actions with a large advantage; 0 imitates all actions equally
    beta: rl.Scheduled[rl.NonNegative] = 3.0
    # the largest weight of an action in the policy's loss
    max_weight: rl.Scheduled[rl.Positive] = 100.0
    n_critics: rl.Count = 2  # number of critics; their lowest value is used
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.005
    net: rl.Net = rl.Net(hidden=(256, 256), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of the policy
    critic_learning_rate: rl.Scheduled[rl.Positive] = 3e-4  # learning rate of critics and values
    anneal_lr: bool = False  # decrease the learning rates to 0 over the run
    # largest gradient norm; default: no clipping
    max_grad_norm: rl.Scheduled[rl.Positive] | None = None
    optimizer: rl.OptimizerName = "adam"  # optimizer of policy, critics and values
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "expectile": rl.uniform(0.5, 0.95),
        "beta": rl.log(0.5, 20),
    }


class IQL(rl.Algorithm[rl.Transitions]):
    """Learns values of the best actions in the data by expectile regression, and a policy that imitates them."""

    Config = IQLConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: IQLConfig

    def build(self) -> None:
        c = self.config
        critic_net = c.critic_net.over(c.net)
        norm, critic_norm = rl.observation_norms(self.spec.obs, c.net, critic_net)
        self.policy = rl.PolicyNetwork(self.spec, c.net, norm=norm)
        self.value = rl.Critic(self.spec, critic_net, norm=critic_norm)
        self.critics = rl.ActionCritics(
            lambda: rl.ActionCritic(self.spec, critic_net, critic_norm), c.n_critics
        )
        self.target_critics = rl.target_network(self.critics)
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics",
            [self.critics, self.value],
            learning_rate="critic_learning_rate",
            defaults={"eps": 1e-8},
        )
        self.policy_optimizer = self.optimizer("policy", [self.policy], defaults={"eps": 1e-8})
        self.target = rl.Target(self.critics, self.target_critics)
        self.log_stds = [part for part in self.policy.modules() if isinstance(part, LogStd)]

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.PolicyAgent:
        return rl.PolicyAgent(self.policy, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self)

    def learn(
        self,
        batch: rl.Transitions,
        now: IQLConfig,
        clock: rl.Clock,
    ) -> rl.Result:
        policy_loss, policy_metrics = self.policy_loss(batch, now)
        critic_loss, critic_metrics = self.critic_loss(batch, now)
        norms = {
            "loss/critic_gradient_norm": self.critic_optimizer.minimize(critic_loss, clock),
            "loss/policy_gradient_norm": self.policy_optimizer.minimize(policy_loss, clock),
        }
        for log_std in self.log_stds:
            log_std.hold(*LOG_STD)
        self.target.move(now.tau)
        return rl.Result({**policy_metrics, **critic_metrics, **norms})

    @rl.pure
    def critic_loss(
        self,
        batch: rl.Transitions,
        now: IQLConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the expectile loss of V(s) to min Q_target(s, a) (eq. 5) plus the squared error of Q (eq. 6).

        It evaluates only actions in the data.
        """
        value = self.value(batch.obs)
        value_target, q_target = self.targets(batch)
        value_loss = batch.mean(rl.expectile_loss(value, value_target, now.expectile))
        q = self.critics(batch.obs, batch.action)
        q_loss = batch.mean((q - q_target).square().sum(0))
        metrics = {"loss/value": value_loss.detach(), "loss/q": q_loss.detach()}
        return value_loss + q_loss, {**metrics, "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def targets(self, batch: rl.Transitions) -> tuple[Tensor, Tensor]:
        """Return the targets of V and of Q, min Q_target(s, a) and r + discount * V(s'), both [B]."""
        q = self.target_critics.lowest(batch.obs, batch.action)
        return q, batch.reward + batch.discount * self.value(batch.next_obs)

    @rl.pure
    def policy_loss(
        self,
        batch: rl.Transitions,
        now: IQLConfig,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return -exp(beta * (min Q_target(s, a) - V(s))) log pi(a | s), with weights up to max_weight (eq. 7)."""
        outputs = self.policy(batch.obs)
        log_prob, _ = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        with torch.no_grad():
            advantage = self.target_critics.lowest(batch.obs, batch.action) - self.value(batch.obs)
            weight = rl.advantage_weight(advantage, now.beta, now.max_weight)
        loss = -batch.mean(weight * log_prob)
        return loss, {"loss/policy": loss.detach(), "loss/weight": batch.mean(weight)}

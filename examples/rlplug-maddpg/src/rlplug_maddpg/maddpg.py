"""MADDPG (Lowe et al., 2017, arXiv:1706.02275): an actor and a centralized critic for each agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor

import rlplug_core as rl


@dataclass(frozen=True)
class MADDPGConfig(rl.Config):
    """Options of MADDPG."""

    learning_starts: rl.Count = 1_000  # env steps before the first gradient step
    random_steps: rl.Natural = 1_000  # env steps at the start with uniformly random actions
    train_freq: rl.Count = 4  # env steps between updates
    gradient_steps: rl.Count = 1  # gradient steps per update
    batch_size: rl.Count = 256  # joint transitions per gradient step
    buffer_size: rl.Count = 100_000  # size of the replay buffer in joint transitions
    # storage of the observations: memory, disk or cuda
    buffer_storage: rl.Store = "memory"
    gamma: rl.Scheduled[rl.Fraction] = 0.95  # discount per step
    noise_sigma: rl.Scheduled[rl.NonNegative] = 0.1  # size of the noise, actions are in [-1, 1]
    # Polyak averaging of the target networks; 1: copy
    tau: rl.Scheduled[rl.UnitInterval] = 0.01
    net: rl.Net = rl.Net(hidden=(64, 64), activation="relu")
    critic_net: rl.CriticNet = rl.CriticNet()
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the actors
    critic_learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of the critics
    max_grad_norm: rl.Scheduled[rl.Positive] = 0.5  # largest gradient norm
    optimizer: rl.OptimizerName = "adam"  # optimizer of actors and critics
    optimizer_kwargs: rl.OptimizerOptions = rl.OptimizerOptions()

    search = {
        "learning_rate": rl.log(1e-5, 1e-2),
        "critic_learning_rate": rl.log(1e-5, 1e-2),
        "tau": rl.log(1e-3, 0.1),
    }


class MADDPG(rl.Algorithm[rl.Transitions]):
    """Each agent acts by its own observation; its critic knows the state of the world and the actions of all."""

    Config = MADDPGConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "decoupled")
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    abilities: ClassVar[tuple[str, ...]] = ("at once",)
    config: MADDPGConfig

    def build(self) -> None:
        c = self.config
        own = rl.agent_spec(self.spec)
        self.agents = self.spec.agents_per_world
        self.policy = rl.PerAgent(lambda: rl.DeterministicPolicy(own, c.net), self.agents)
        critic_net = c.critic_net.over(c.net)
        self.state = rl.JointState(self.spec, critic_net.obs)
        size = prod(own.action.shape or ())
        joint = replace(
            own,
            obs=spaces.Box(-np.inf, np.inf, (self.state.features,)),
            action=spaces.Box(-1, 1, (self.agents * size,)),
        )
        net = replace(critic_net.default_encoder(), obs=())
        self.critics = rl.ActionCritics(lambda: rl.ActionCritic(joint, net), self.agents)
        self.target_policy = rl.target_network(self.policy)
        self.target_critics = rl.target_network(self.critics)
        self.to(self.device)
        self.critic_optimizer = self.optimizer(
            "critics", [self.critics], learning_rate="critic_learning_rate"
        )
        self.policy_optimizer = self.optimizer("policy", [self.policy])
        self.fixed_critics = rl.NoGradient(self.critics)
        self.targets = [
            rl.Target(self.policy, self.target_policy),
            rl.Target(self.critics, self.target_critics),
        ]

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.NoiseAgent:
        c = self.config
        noise = rl.action_noise("gaussian", self.schedule("noise_sigma"), None)
        return rl.NoiseAgent(
            self.policy, noise, self.agent_seeds(rank), self.inference_backend, c.random_steps
        )

    def buffer(self) -> rl.ReplayBuffer:
        return rl.replay_from_options(self, self.agents)

    def learn(self, batch: rl.Transitions, now: MADDPGConfig, clock: rl.Clock) -> rl.Result:
        loss, metrics = self.critic_loss(batch, now)
        metrics["loss/critic_gradient_norm"] = self.critic_optimizer.minimize(loss, clock)
        with self.fixed_critics:
            loss = self.policy_loss(batch)
        metrics["loss/policy"] = loss.detach()
        metrics["loss/policy_gradient_norm"] = self.policy_optimizer.minimize(loss, clock)
        for target in self.targets:
            target.move(now.tau)
        return rl.Result(metrics)

    @rl.pure
    def critic_loss(
        self, batch: rl.Transitions, now: MADDPGConfig
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return half the squared error of the critic of every agent (eq. 6); and metrics."""
        q = self.critics(self.state(batch.obs), batch.action.flatten(1))
        present = batch.obs["present"].T
        errors = 0.5 * (q - self.td_target(batch)).square() * present
        loss = batch.mean(errors.sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(q.detach().mean(0))}

    @torch.no_grad()
    def td_target(self, batch: rl.Transitions) -> Tensor:
        """Return each agent's r + discount * Q_target(s', a'_1, ..., a'_A) [A, B]; 0 after its own end."""
        actions = self.actions_of(self.target_policy, batch.next_obs)
        next_q = self.target_critics(self.state(batch.next_obs), actions.flatten(1))
        reward, terminated = (batch.extras[f"agent_{name}"].T for name in ("reward", "terminated"))
        target: Tensor = reward + batch.discount * (1 - terminated) * next_q
        return target

    @rl.pure
    def policy_loss(self, batch: rl.Transitions) -> Tensor:
        """Return -Q_i(s, a) of every agent, with its own action from its actor and the others' from replay (eq. 5)."""
        own = self.actions_of(self.policy, batch.obs)
        state = self.state(batch.obs)
        present = batch.obs["present"]
        total = torch.zeros(len(own), device=own.device)
        for number in range(self.agents):
            mine = torch.arange(self.agents, device=own.device) == number
            actions = torch.where(mine[:, None], own, batch.action.flatten(2))
            q = self.critics[number](state, actions.flatten(1))
            total = total - q * present[:, number]
        return batch.mean(total)

    def actions_of(self, policy: rl.PerAgent, obs: dict[str, Tensor]) -> Tensor:
        """Return the greedy actions [B, A, d] of all agents; 0 for absent agents."""
        actions = policy(rl.agent_rows(obs)).unflatten(0, (-1, self.agents))
        masked: Tensor = actions * obs["present"].unsqueeze(2)
        return masked

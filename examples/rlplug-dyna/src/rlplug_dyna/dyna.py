"""Dyna: Q-learning from real steps and from steps of a learned model (Sutton, 1990; Sutton et al., 2008)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

import rlplug_core as rl


@dataclass(frozen=True)
class DynaConfig(rl.Config):
    """Options of Dyna."""

    learning_starts: rl.Count = 200  # env steps before the first gradient step
    train_freq: rl.Count = 2  # env steps between updates
    batch_size: rl.Count = 64  # transitions per gradient step
    buffer_size: rl.Count = 50_000  # transitions kept in the replay buffer
    # successive model steps from every transition of a batch; 0 is DQN
    planning_steps: rl.Natural = 4
    model_hidden: rl.Count = 128  # units in each of the two hidden layers of the model
    gamma: rl.Scheduled[rl.Fraction] = 0.99  # discount per step
    # share of the run during which the probability of a random action falls
    exploration_fraction: rl.Positive = 0.3
    exploration_final_eps: rl.Fraction = 0.05  # final probability of a random action
    tau: rl.Scheduled[rl.UnitInterval] = 0.01  # how far the target network moves per gradient step
    net: rl.Net = rl.Net(hidden=(64, 64), activation="relu")
    learning_rate: rl.Scheduled[rl.Positive] = 1e-3  # learning rate of values and model

    search = {"learning_rate": rl.log(1e-4, 1e-2), "planning_steps": rl.integer(0, 8)}


class WorldModel(nn.Module):
    """Maps observations [B, F], actions [B] to next observations [B, F], rewards [B] and termination logits [B]."""

    def __init__(self, features: int, actions: int, hidden: int) -> None:
        super().__init__()
        self.actions = actions
        self.layers = nn.Sequential(
            nn.Linear(features + actions, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, features + 2),
        )

    def forward(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        one_hot = nn.functional.one_hot(action, self.actions).to(obs.dtype)
        outputs: Tensor = self.layers(torch.cat([obs, one_hot], 1))
        return obs + outputs[:, :-2], outputs[:, -2], outputs[:, -1]


class Dyna(rl.Algorithm[rl.Transitions]):
    """Trains values and model on each batch, then trains the values on transitions that the model predicts from it."""

    Config = DynaConfig
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: DynaConfig

    def build(self) -> None:
        c = self.config
        obs = self.spec.obs
        action = self.spec.action
        if not isinstance(obs, spaces.Box) or len(obs.shape) != 1:
            raise rl.UsageError(
                f"dyna models vectors, but observations of {self.spec.id} are {obs}; try --wrap flatten"
            )
        assert isinstance(action, spaces.Discrete)
        self.q_network = rl.QNetwork(self.spec, c.net).to(self.device)
        self.target_network = rl.target_network(self.q_network)
        self.target = rl.Target(self.q_network, self.target_network)
        self.model = WorldModel(obs.shape[0], int(action.n), c.model_hidden).to(self.device)
        rate = self.schedule("learning_rate")
        self.q_optimizer = self.optimizer(
            "q_network", [self.q_network], learning_rate=rate, max_grad_norm=10.0
        )
        self.model_optimizer = self.optimizer("model", [self.model], learning_rate=rate)

    def agent(self, rank: int = 0, ranks: int = 1) -> rl.EpsilonGreedy:
        c = self.config
        epsilon = rl.epsilon_schedule(1.0, c.exploration_final_eps, c.exploration_fraction)
        return rl.EpsilonGreedy(
            self.q_network, epsilon, self.agent_seeds(rank), self.inference_backend
        )

    def buffer(self) -> rl.ReplayBuffer:
        c = self.config
        pace = rl.ReplaySchedule(c.batch_size, c.train_freq, 1, c.learning_starts)
        seeds = self.seeds.child("buffer")
        gamma = self.schedule("gamma")
        return rl.replay_buffer(
            c.buffer_size, pace, n_step=1, gamma=gamma, seeds=seeds, device=self.device
        )

    def learn(self, batch: rl.Transitions, now: DynaConfig, clock: rl.Clock) -> rl.Result:
        model_loss = self.model_loss(batch)
        self.model_optimizer.minimize(model_loss, clock)
        metrics = {"loss/model": model_loss.detach()}
        for _ in range(1 + now.planning_steps):
            loss = self.loss(batch)
            metrics |= {
                "loss/value": loss.detach(),
                "loss/gradient_norm": self.q_optimizer.minimize(loss, clock),
            }
            self.target.move(now.tau)
            batch = self.imagine(batch, now)
        return rl.Result(metrics)

    @rl.pure
    def loss(self, batch: rl.Transitions) -> Tensor:
        """Return the Huber loss of r + discount * max Q_target(s', a') - Q(s, a)."""
        q = rl.of_action(self.q_network(batch.obs), batch.action)
        with torch.no_grad():
            next_q = self.target_network(batch.next_obs)
            target = batch.reward + batch.discount * rl.of_action(next_q, next_q.argmax(1))
        return batch.mean(rl.regression(q, target, "huber"))

    @rl.pure
    def model_loss(self, batch: rl.Transitions) -> Tensor:
        """Return squared errors of next observation and reward plus the cross-entropy of termination.

        The observation after a termination is arbitrary, so its error does not count.
        """
        ended = (batch.discount == 0).to(batch.reward.dtype)
        next_obs, reward, logit = self.model(batch.obs, batch.action)
        error = (next_obs - batch.next_obs).square().sum(1)
        loss = torch.where(ended > 0, 0.0, error) + (reward - batch.reward).square()
        return batch.mean(
            loss + nn.functional.binary_cross_entropy_with_logits(logit, ended, reduction="none")
        )

    @torch.no_grad()
    def imagine(self, batch: rl.Transitions, now: DynaConfig) -> rl.Transitions:
        """Predict the next step with random actions; rows that have terminated stay at their last observation."""
        obs = torch.where(batch.discount.unsqueeze(1) > 0, batch.next_obs, batch.obs)
        choices = self.generator.integers(self.model.actions, size=len(obs))
        action = torch.from_numpy(choices).to(self.device)
        next_obs, reward, logit = self.model(obs, action)
        discount = now.gamma * (1 - logit.sigmoid())
        return replace(
            batch,
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            discount=discount,
            share=batch.counts,
        )

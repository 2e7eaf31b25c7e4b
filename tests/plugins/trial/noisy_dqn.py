"""DQN that explores by noise on its weights (Fortunato et al., 2018, arXiv:1706.10295)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rlplug_core import Algorithm, Config
from rlplug_core.acting.epsilon_greedy import NoisyGreedy
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.clock import Clock, due
from rlplug_core.config.options import Count, Fraction, Positive
from rlplug_core.config.schedules import constant
from rlplug_core.learning.targets import Target, target_network
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.heads import masked
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.q_networks import actions_of
from rlplug_core.types import Obs, Result, Spec


@dataclass(frozen=True)
class NoisyDQNConfig(Config):
    """Options of noisy DQN."""

    buffer_size: Count = 10_000  # transitions kept for replay
    batch_size: Count = 32  # transitions per gradient step
    train_freq: Count = 4  # env steps per gradient step
    learning_starts: Count = 500  # env steps before the first gradient step
    gamma: Fraction = 0.99  # discount per step
    learning_rate: Positive = 5e-4  # step size of Adam
    noisy_sigma: Positive = 0.5  # initial noise
    target_update_interval: Count = 100  # gradient steps between copies to the target network
    net: Net = Net(hidden=(64,), activation="relu")


class NoisyQ(nn.Module):
    """Action values with a noisy last layer; its noise is an argument."""

    def __init__(self, spec: Spec, net: Net, sigma: float) -> None:
        super().__init__()
        self.encoder, inputs = encoder(spec.obs, net)
        self.output = NoisyLinear(inputs, actions_of(spec.action), "factorized", sigma)

    def forward(self, obs: Obs, noise: Tensor | None = None) -> Tensor:
        return masked(self.output(self.encoder(obs), noise), obs)


class NoisyDQN(Algorithm[Transitions]):
    """Q-learning; `update` draws, `loss` is pure."""

    Config = NoisyDQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: NoisyDQNConfig

    def build(self) -> None:
        c = self.config
        self.online = NoisyQ(self.spec, c.net, c.noisy_sigma)
        self.target = target_network(self.online)
        self.optim = self.optimizer(
            "online", [self.online], learning_rate=constant(c.learning_rate), max_grad_norm=10.0
        )
        self.follower = Target(self.online, self.target)

    def agent(self, rank: int = 0, ranks: int = 1) -> NoisyGreedy:
        return NoisyGreedy(self.online, self.online.output.draw, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        pace = ReplaySchedule(c.batch_size, c.train_freq, 1, c.learning_starts)
        return ReplayBuffer(c.buffer_size, pace, 1, c.gamma, self.seeds.child("buffer"), self.device)

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        noise, target_noise = (torch.from_numpy(self.online.output.draw(self.generator)) for _ in range(2))
        loss, metrics = self.loss((batch, noise, target_noise))
        metrics["loss/gradient_norm"] = self.optim.minimize(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_update_interval):
            self.follower.move()
        return Result(metrics)

    def loss(self, drawn: tuple[Transitions, Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        batch, noise, target_noise = drawn
        value = self.online(batch.obs, noise).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.target(batch.next_obs, target_noise).amax(1)
        loss = batch.mean(nn.functional.smooth_l1_loss(value, target, reduction="none"))
        return loss, {"loss/value": loss.detach(), "loss/sigma": self.online.output.weight_sigma.detach().abs().mean()}

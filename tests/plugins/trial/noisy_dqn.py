"""DQN that explores by noise on its weights (Fortunato et al., 2018, arXiv:1706.10295)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from rlplug_core import Algorithm, Config
from rlplug_core.algorithm import move_target, target_network
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.clock import Clock, due
from rlplug_core.config import Count, Fraction, Positive
from rlplug_core.exploration import NoisyGreedy
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.heads import masked
from rlplug_core.nets.modules import actions_of
from rlplug_core.nets.net import Net
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.schedules import constant
from rlplug_core.types import Obs, Result, Spec


@dataclass(frozen=True)
class NoisyDQNConfig(Config):
    """Options of noisy DQN."""

    capacity: Count = 10_000  # transitions kept for replay
    batch: Count = 32  # transitions per gradient step
    every: Count = 4  # env steps per gradient step
    start: Count = 500  # env steps before the first gradient step
    gamma: Fraction = 0.99  # discount per step
    lr: Positive = 5e-4  # step size of Adam
    sigma: Positive = 0.5  # noise at the beginning
    target_every: Count = 100  # gradient steps between copies to the target network
    net: Net = Net(hidden=(64,), activation="relu")


class NoisyQ(nn.Module):
    """Action values whose last layer is noisy; its noise is an argument."""

    def __init__(self, spec: Spec, net: Net, sigma: float) -> None:
        super().__init__()
        self.encoder, inputs = encoder(spec.obs, net)
        self.output = NoisyLinear(inputs, actions_of(spec.action), "factorised", sigma)

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
        self.online = NoisyQ(self.spec, c.net, c.sigma)
        self.target = target_network(self.online)
        self.optim = self.optimiser([self.online], constant(c.lr), 10.0)

    def agent(self, rank: int = 0, ranks: int = 1) -> NoisyGreedy:
        return NoisyGreedy(self.online, self.online.output.draw, self.agent_seeds(rank), self.acting)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        pace = Pace(c.batch, c.every, 1, c.start)
        return ReplayBuffer(c.capacity, pace, 1, c.gamma, self.seeds.child("buffer"), self.device)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        noise, target_noise = (torch.from_numpy(self.online.output.draw(self.generator)) for _ in range(2))
        loss, metrics = self.loss((batch, noise, target_noise))
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            move_target(self.target, self.online)
        return Result(metrics)

    def loss(self, drawn: tuple[Transitions, Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        batch, noise, target_noise = drawn
        value = self.online(batch.obs, noise).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.target(batch.next_obs, target_noise).amax(1)
        loss = batch.mean(nn.functional.smooth_l1_loss(value, target, reduction="none"))
        return loss, {"loss/value": loss.detach(), "loss/sigma": self.online.output.weight_sigma.detach().abs().mean()}

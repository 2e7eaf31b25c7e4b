"""Deep Q-learning (Mnih et al., 2015), with double, dueling and n-step variants as switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from rlplug_core.agents import EpsilonGreedy
from rlplug_core.algorithm import Algorithm, target_network
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.clock import Clock, due
from rlplug_core.config import Config, Count, Fraction, Positive, integer, log
from rlplug_core.nets.modules import QNetwork
from rlplug_core.nets.net import Net
from rlplug_core.schedules import constant, linear
from rlplug_core.types import Result


@dataclass(frozen=True)
class DQNConfig(Config):
    """Options of DQN."""

    capacity: Count = 100_000  # transitions kept for replay
    batch: Count = 64  # transitions per gradient step
    every: Count = 4  # env steps between bursts of gradient steps
    updates: Count = 1  # gradient steps per burst
    start: Count = 1_000  # env steps before the first gradient step
    gamma: Fraction = 0.99  # discount per step
    n_step: Count = 1  # rewards summed before bootstrapping
    double: bool = False  # let the online network choose the target's action (van Hasselt et al., 2016)
    dueling: bool = False  # separate state value and advantages (Wang et al., 2016)
    lr: Positive = 5e-4  # step size of Adam
    anneal: bool = False  # let the step size fall to 0 over the run
    target_every: Count = 250  # gradient steps between copies to the target network
    epsilon_start: Fraction = 1.0  # chance of a random action at the beginning
    epsilon_end: Fraction = 0.05  # and at the end
    epsilon_until: Positive = 0.2  # share of the run over which it falls
    gradient_clip: Positive = 10.0  # largest gradient norm
    net: Net = Net(hidden=(256, 256), activation="relu")

    search = {"lr": log(1e-5, 1e-2), "n_step": integer(1, 5), "target_every": integer(50, 2000)}


class DQN(Algorithm[Transitions]):
    """Q-learning on replayed transitions against a target network."""

    Config = DQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: DQNConfig

    def build(self) -> None:
        c = self.config
        self.online = QNetwork(self.spec, c.net, c.dueling).to(self.device)
        self.target = target_network(self.online)
        lr = linear(c.lr, 0.0) if c.anneal else constant(c.lr)
        self.optim = self.optimiser([self.online], lr, c.gradient_clip)

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        c = self.config
        epsilon = linear(c.epsilon_start, c.epsilon_end, c.epsilon_until)
        return EpsilonGreedy(self.online, epsilon, self.agent_seeds(rank), self.acting)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        pace = Pace(c.batch, c.every, c.updates, c.start)
        return ReplayBuffer(c.capacity, pace, c.n_step, c.gamma, self.seeds.child("buffer"), self.device)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        loss, metrics = self.loss(batch)
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_every):
            self.target.load_state_dict(self.online.state_dict())
        return Result(metrics)

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Huber loss of r + discount * max Q_target(s', a') - Q(s, a); with `double`, a' maximises the online Q."""
        values = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            following = self.target(batch.next_obs)
            chosen = (self.online(batch.next_obs) if self.config.double else following).argmax(1, keepdim=True)
            target = batch.reward + batch.discount * following.gather(1, chosen).squeeze(1)
        loss = batch.mean(nn.functional.smooth_l1_loss(values, target, reduction="none"))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(values.detach())}

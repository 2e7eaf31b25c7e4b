"""Online Q-learning with a network (Watkins, 1989; Mnih et al., 2013): no replay, the newest step of many rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlplug_core.accelerate.forward import forward
from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Samples
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.config import Config, Fraction, Positive, log
from rlplug_core.estimators import gae
from rlplug_core.exploration import EpsilonGreedy
from rlplug_core.nets.modules import QNetwork
from rlplug_core.nets.net import Net
from rlplug_core.protocols import Buffer
from rlplug_core.rules import OptimiserOptions, RuleName
from rlplug_core.schedules import Schedule, linear
from rlplug_core.types import Array, Obs, Result


@dataclass(frozen=True)
class VQNConfig(Config):
    """Options of VQN."""

    gamma: Fraction = 0.99  # discount per step
    dueling: bool = False  # separate state value and advantages (Wang et al., 2016)
    lr: Positive = 1e-3  # step size of the optimiser
    anneal: bool = False  # let the step size fall to 0 over the run
    rule: RuleName = "adam"  # which optimiser steps
    optimiser: OptimiserOptions = OptimiserOptions()
    epsilon_start: Fraction = 1.0  # chance of a random action at the beginning
    epsilon_end: Fraction = 0.02  # and at the end
    epsilon_until: Positive = 0.5  # share of the run over which it falls
    clip: Positive = 1.0  # largest gradient norm
    net: Net = Net()

    search = {"lr": log(1e-5, 1e-2)}


class VQN(Algorithm[Rollout]):
    """One gradient step on every vector step; what makes up for the missing replay is the number of rows."""

    Config = VQNConfig
    runners: ClassVar[tuple[str, ...]] = ("sync", "async")
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: VQNConfig

    def build(self) -> None:
        c = self.config
        self.online = QNetwork(self.spec, c.net, c.dueling).to(self.device)
        lr, rule = self.step_size("lr", c.anneal), c.optimiser.rule(c.rule)
        self.optim = self.optimiser([self.online], lr, c.clip, rule)
        self.values = forward(self.online, self.acting)

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        return EpsilonGreedy(self.online, self.epsilon(rank), self.agent_seeds(rank), self.acting)

    def epsilon(self, rank: int) -> Schedule:
        """The chance of a random action in a worker."""
        c = self.config
        return linear(c.epsilon_start, c.epsilon_end, c.epsilon_until)

    def buffer(self) -> Buffer[Rollout]:
        return RolloutBuffer(steps=1)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        target = self.targets(batch, clock)
        loss, metrics = self.loss(batch.samples(target, target, self.device))  # values have no advantages
        metrics["loss/gradient_norm"] = self.optim.minimise(loss, clock)
        return Result(metrics)

    def targets(self, batch: Rollout, clock: Clock) -> Array:
        """The rewards [T, N] to the end of the rollout or episode, and from there gamma^k max_a Q(s, a)."""
        value, successor = batch.values(self.best)
        return gae(batch, value, successor, self.config.gamma, lam=1.0)[1]

    def best(self, obs: Obs) -> Array:
        """The value [B] of the best legal action: max_a Q(s, a)."""
        value: Array = self.values(obs).max(-1)
        return value

    def loss(self, batch: Samples) -> tuple[Tensor, dict[str, Tensor]]:
        """The squared error of Q(s, a) against its target, which no gradient reaches."""
        values = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        loss = batch.mean((values - batch.target).square())
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(values.detach())}

"""What the algorithms for continuous actions share: options, critics with targets, replay, and the update."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.algorithm import Algorithm, Follower, Frozen, discounted, replay_gamma
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.clock import Clock, due
from rlplug_core.config import Config, Count, Fraction, Natural, Positive, Share, log
from rlplug_core.nets.net import Net
from rlplug_core.optimiser import Optimiser
from rlplug_core.rules import OptimiserOptions, Rule, RuleName
from rlplug_core.scheduled import unguarded
from rlplug_core.types import Result


@dataclass(frozen=True)
class OffPolicyConfig(Config):
    """Options that the algorithms for continuous actions share."""

    capacity: Count = 1_000_000  # transitions kept for replay
    store: Literal["memory", "disk", "cuda"] = "memory"  # where their observations are kept
    batch: Count = 256  # transitions per gradient step
    every: Count = 1  # env steps between bursts of gradient steps
    updates: Count = 1  # gradient steps per burst
    start: Count = 1_000  # env steps before the first gradient step
    warmup: Natural = 1_000  # env steps at the beginning that act uniformly at random
    gamma: Fraction = 0.99  # discount per step
    n_step: Count = 1  # rewards summed before bootstrapping
    critics: Count = 2  # critics side by side
    tau: Share = 0.005  # how far targets move at a time (Polyak averaging); 1 copies
    policy_every: Count = 1  # gradient steps of the critics for one of the policy and a move of the targets
    lr: Positive = 3e-4  # step size of the policy's optimiser
    critic_lr: Positive = 3e-4  # step size of the critics' optimiser
    rule: RuleName = "adam"  # which optimiser steps
    optimiser: OptimiserOptions = OptimiserOptions()
    anneal: bool = False  # let the step sizes fall to 0 over the run
    gradient_clip: Positive | None = None  # largest norm of a gradient; none leaves it
    net: Net = Net(hidden=(256, 256), activation="relu")

    search = {"lr": log(1e-5, 1e-2), "critic_lr": log(1e-5, 1e-2), "tau": log(1e-3, 0.1)}


class OffPolicy(Algorithm[Transitions]):
    """A policy and its critics, trained on replay; a subclass states its networks, its agent and the two losses.

    Attributes:
        policy, critics: networks; both get an optimiser each.
        targets: pairs (target network, the network it follows).
    """

    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Box",)
    config: OffPolicyConfig
    policy: nn.Module
    critics: nn.Module

    def networks(self) -> None:
        """Make the policy, the critics and whatever else has parameters."""
        raise NotImplementedError

    def pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Target networks, each with the network that it follows."""
        raise NotImplementedError

    def draws(self, batch: Transitions) -> dict[str, Tensor]:
        """Random numbers for the losses of one update, each [B, ...]."""
        return {}

    def policy_loss(self, batch: Transitions) -> tuple[Any, ...]:
        """The policy's loss and its metrics; pure. Only `policy_modules` get a gradient."""
        raise NotImplementedError

    def policy_modules(self) -> list[nn.Module]:
        """What the policy's loss trains."""
        return [self.policy]

    def build(self) -> None:
        self.networks()
        self.to(self.device)
        self.critic_optimiser = self._optimiser([self.critics], "critic_lr")
        self.policy_optimiser = self._optimiser(self.policy_modules(), "lr")
        self.frozen = Frozen(self.critics)
        self.followers = [Follower(target, online) for target, online in self.pairs()]
        if self.context.compile:
            self.policy_loss = torch.compile(self.policy_loss)  # type: ignore[method-assign]

    def _optimiser(self, modules: list[nn.Module], lr: str) -> Optimiser:
        c = self.config
        clip = None if unguarded(c).gradient_clip is None else self.schedule("gradient_clip")
        return self.optimiser(modules, self.step_size(lr, c.anneal), clip, self.rule())

    def rule(self) -> Rule:
        return self.config.optimiser.rule(self.config.rule, epsilon=1e-8)

    def buffer(self) -> ReplayBuffer:
        c = self.config
        pace, gamma = Pace(c.batch, c.every, c.updates, c.start), replay_gamma(self, c.n_step)
        return ReplayBuffer(c.capacity, pace, c.n_step, gamma, self.seeds.child("buffer"), self.device, c.store)

    def update(self, batch: Transitions, clock: Clock) -> Result:
        self.begin(batch)
        loss, metrics = self.loss(batch)
        metrics["loss/critic_gradient_norm"] = self.critic_optimiser.minimise(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.policy_every):
            with self.frozen:
                loss, further = self.policy_loss(batch)
            metrics |= {**further, "loss/policy_gradient_norm": self.policy_optimiser.minimise(loss, clock)}
            for follower in self.followers:
                follower.move(self.config.tau)
        return Result(metrics)

    def begin(self, batch: Transitions) -> None:
        """What an update begins with: the discount of the moment, and random numbers for the losses."""
        discounted(self, batch)
        batch.extras = batch.extras | self.draws(batch)

    def gaussian(self, batch: Transitions, *names: str) -> dict[str, Tensor]:
        """Standard normal numbers in the shape of the batch's actions, [B, dims] for each name."""
        drawn = self.generator.standard_normal(
            (len(names), len(batch.action), prod(self.spec.action.shape or ())), dtype=np.float32
        )
        return dict(zip(names, torch.from_numpy(drawn).to(self.device), strict=True))

    def loss(self, batch: Transitions) -> tuple[Any, ...]:
        """Squared error of every critic (half of it, summed over critics) against one target."""
        target = self.target(batch)
        values: Tensor = self.critics(batch.obs, batch.action)
        loss = batch.mean(0.5 * (values - target).square().sum(0))
        return loss, {"loss/value": loss.detach(), "loss/q_mean": batch.mean(values.detach().mean(0))}

    def target(self, batch: Transitions) -> Tensor:
        """What the critics shall say [B], without gradient."""
        raise NotImplementedError

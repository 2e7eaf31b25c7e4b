"""Q-learning from replayed steps of several actors, each with its own environments (after Horgan et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core import Algorithm, Config
from rlplug_core.acting.epsilon_greedy import EpsilonGreedy
from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.clock import Clock, due
from rlplug_core.config.options import Count, Fraction, Positive
from rlplug_core.config.schedules import constant
from rlplug_core.learning.targets import target_network
from rlplug_core.nets.net import Net
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.seeds import Seeds
from rlplug_core.types import Result, State, Step, tree_map


@dataclass(frozen=True)
class TwoActorsConfig(Config):
    """Options of Q-learning with several actors."""

    buffer_size: Count = 10_000  # transitions kept of each actor
    batch_size: Count = 32  # transitions per gradient step
    train_freq: Count = 4  # env steps of all actors per gradient step
    learning_starts: Count = 500  # env steps of all actors before the first gradient step
    n_step: Count = 2  # rewards summed before bootstrapping
    gamma: Fraction = 0.99  # discount per step
    learning_rate: Positive = 5e-4  # step size of Adam
    epsilon: Fraction = 0.4  # chance of a random action of the first actor; each further one has a tenth of it
    target_update_interval: Count = 100  # gradient steps between copies to the target network
    net: Net = Net(hidden=(64,), activation="relu")


class SourcesReplay:
    """One ring of steps per actor, so that no transition leads from one actor's row to another's."""

    def __init__(self, make: Callable[[int], ReplayBuffer], pace: ReplaySchedule, ready: int, seeds: Seeds) -> None:
        self.make = make
        self.pace = pace
        self.ready = ready
        self.generator = seeds.generator()
        self.rings: dict[int, ReplayBuffer] = {}
        self.added = self.due_batches = 0

    def add(self, step: Step, source: int = 0) -> None:
        if source not in self.rings:
            self.rings[source] = self.make(source)
        self.rings[source].add(step)
        before, pace = self.added, self.pace
        self.added += int(step.valid.sum())
        if self.added >= pace.learning_starts:
            self.due_batches += pace.gradient_steps * (self.added // pace.train_freq - before // pace.train_freq)

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        while self.due_batches and (rings := [ring for ring in self.rings.values() if ring.count > self.ready]):
            self.due_batches -= 1
            stored = np.array([ring.added for ring in rings], float)
            shares = self.generator.multinomial(self.pace.batch_size, stored / stored.sum())
            yield concatenate(
                [ring.gather(ring.sample(int(share))) for ring, share in zip(rings, shares, strict=True) if share]
            )

    def feedback(self, batch: Transitions, result: Result) -> None:
        """It has no priorities."""

    def restart(self) -> None:
        for ring in self.rings.values():
            ring.restart()

    def state_dict(self) -> State:
        rings = {str(source): ring.state_dict() for source, ring in self.rings.items()}
        generator = self.generator.bit_generator.state
        return {"rings": rings, "added": self.added, "due_batches": self.due_batches, "generator": generator}

    def load_state_dict(self, state: State) -> None:
        self.rings = {int(source): self.make(int(source)) for source in state["rings"]}
        for source, ring in self.rings.items():
            ring.load_state_dict(state["rings"][str(source)])
        self.added = state["added"]
        self.due_batches = state["due_batches"]
        self.generator.bit_generator.state = state["generator"]


def concatenate(parts: list[Transitions]) -> Transitions:
    """Concatenate batches."""
    merged: dict[str, Any] = {}
    for field in (field for field in fields(Transitions) if field.init):
        first, *rest = (getattr(part, field.name) for part in parts)
        merged[field.name] = tree_map(lambda *tensors: torch.cat(tensors), first, *rest)
    return Transitions(share=None, **merged)


class TwoActors(Algorithm[Transitions]):
    """Q-learning; the epsilon of an actor depends on its rank."""

    Config = TwoActorsConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = ("Discrete",)
    config: TwoActorsConfig

    def build(self) -> None:
        c = self.config
        self.online = QNetwork(self.spec, c.net)
        self.target = target_network(self.online)
        self.optim = self.optimizer(
            "online", [self.online], learning_rate=constant(c.learning_rate), max_grad_norm=10.0
        )

    def agent(self, rank: int = 0, ranks: int = 1) -> EpsilonGreedy:
        epsilon = constant(self.config.epsilon * 0.1**rank)
        return EpsilonGreedy(self.online, epsilon, self.agent_seeds(rank), self.inference_backend)

    def buffer(self) -> SourcesReplay:
        c = self.config
        seeds = self.seeds.child("buffer")
        pace = ReplaySchedule(c.batch_size, c.train_freq, 1, c.learning_starts)

        def ring(source: int) -> ReplayBuffer:
            return ReplayBuffer(c.buffer_size, pace, c.n_step, c.gamma, seeds.child("ring", source), self.device)

        return SourcesReplay(ring, pace, c.n_step, seeds)

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        loss, metrics = self.loss(batch)
        metrics["loss/gradient_norm"] = self.optim.minimize(loss, clock)
        if due(clock.updates, clock.updates + 1, self.config.target_update_interval):
            self.target.load_state_dict(self.online.state_dict())
        return Result(metrics)

    def loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        value = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            target = batch.reward + batch.discount * self.target(batch.next_obs).amax(1)
        loss = batch.mean(nn.functional.smooth_l1_loss(value, target, reduction="none"))
        return loss, {"loss/value": loss.detach()}

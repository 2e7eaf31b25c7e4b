"""Asynchronous n-step Q-learning (Mnih et al., 2016, arXiv:1602.01783, algorithm S2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import ClassVar

import numpy as np

from rlplug_algos.action_values import CHOICE, TARGET
from rlplug_algos.vqn import VQN, VQNConfig, only
from rlplug_core.algorithm import target_network
from rlplug_core.batches import Rollout
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.buffers.trajectories import TrajectoryReplay
from rlplug_core.clock import Clock, due
from rlplug_core.config import Count, Fraction, NonNegative, integer, log
from rlplug_core.exploration import of_action
from rlplug_core.protocols import Buffer
from rlplug_core.rules import RuleName
from rlplug_core.schedules import Schedule
from rlplug_core.types import Array, Obs, Result


@dataclass(frozen=True)
class NStepQConfig(VQNConfig):
    """Options of n-step Q-learning: those of VQN, and what the paper adds."""

    steps: Count = 5  # rollout length per environment row: the most rewards summed before bootstrapping
    double: bool = False  # let the online network choose the target's action (van Hasselt et al., 2016)
    target_every: Count = 100  # updates of the first worker between copies to the target network
    rule: RuleName = "rmsprop"  # optimiser; rmsprop as in the paper
    epsilon_end: Fraction = 0.1  # and at the end, for 4 workers in 10
    epsilon_others: tuple[Fraction, ...] = (0.01, 0.5)  # and at the end for the others, each for as many
    replay: NonNegative = 0.0  # replayed rollouts per fresh one, on average; their number is Poisson distributed
    capacity: Count = 10_000  # env steps that each worker keeps for replay, in whole rollouts

    search = {"lr": log(1e-5, 1e-2), "steps": integer(1, 20), "target_every": integer(20, 2000)}


class NStepQ(VQN):
    """VQN's learner on rollouts against one target network, which all workers share; they explore differently."""

    Config = NStepQConfig
    runners: ClassVar[tuple[str, ...]] = ("async", "sync")
    config: NStepQConfig

    def build(self) -> None:
        super().build()
        self.uses += self.config.double
        self.target = target_network(self.online)
        self.target_values = self.hosted(self.target)

    def epsilon(self, rank: int) -> Schedule:
        """To one of several final values, so that workers explore differently (section 5.1)."""
        return self.config.epsilon(self.final_epsilon(rank))

    def final_epsilon(self, rank: int) -> float:
        """The paper draws it for each worker; shared out in turn, few workers differ and many keep the proportions."""
        others = self.config.epsilon_others
        chances = [0.4, *[0.6 / len(others)] * len(others)] if others else [1.0]
        turns = shared_out(chances, self.seeds.child("epsilon").generator())
        return (self.config.epsilon_end, *others)[next(islice(turns, rank, None))]

    def buffer(self) -> Buffer[Rollout]:
        """Fresh rollouts; with `replay` kept ones again, towards targets made anew (as in Wang et al., 2017)."""
        c, seeds = self.config, self.seeds.child("buffer", self.context.rank)
        if "replay" not in self.context.schedules and not c.replay:
            return RolloutBuffer(c.steps)
        capacity = max(1, c.capacity // (c.steps * self.spec.rows))
        return TrajectoryReplay(c.steps, capacity, self.schedule("replay"), 1, seeds)

    def update(self, batch: Rollout, clock: Clock) -> Result:
        result = super().update(batch, clock)
        if self.context.rank == 0 and due(clock.updates, clock.updates + 1, self.config.target_every):
            self.target.load_state_dict(self.online.state_dict())  # in place: all workers see it
        return result

    def best(self, obs: Obs, noise: Sequence[Array] = ()) -> Array:
        """The target network's value [B] of its best action; with `double` of the online network's."""
        values = self.target_values(obs, *only(noise, TARGET))
        by = self.values(obs, *only(noise, CHOICE)) if self.config.double else values
        return of_action(values, by.argmax(-1))


def shared_out(chances: Sequence[float], generator: np.random.Generator) -> Iterator[int]:
    """Which of several things is whose turn: each one once, drawn without putting back, then whichever is rarest.

    Rarest is what is furthest behind its share, so that after n turns each has had about n times its chance.
    """
    order = generator.choice(len(chances), len(chances), replace=False, p=chances)
    had = np.zeros(len(chances))
    for turn in count():
        which = order[turn] if turn < len(order) else (np.multiply(chances, turn + 1) - had).argmax()
        had[which] += 1
        yield int(which)

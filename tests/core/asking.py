"""Algorithms for the conformance kit that ask for signals, a data set or goals, correctly or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch

from rlplug_core.batches import Rollout, Transitions
from rlplug_core.buffers.hindsight import HindsightReplay, goals_of
from rlplug_core.buffers.replay import ReplaySchedule
from rlplug_core.clock import Clock
from rlplug_core.types import Result, State
from tests.core.demonstrations import Imitates
from tests.core.fakes import Tiny, TinyQ


class SubtractsCost(Tiny):
    """Learns from reward minus cost, and from a signal with two numbers and a default."""

    signals: ClassVar[Any] = {"cost": None, "pair": (0.0, 0.0)}

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        cost = batch.extras["cost"] + batch.extras["pair"].sum(-1)
        return super().learn(replace(batch, reward=batch.reward - cost * (batch.weight > 0)), now, clock)


class UnusedSignal(Tiny):
    """Names a signal and does not use it."""

    signals: ClassVar[Any] = ("cost",)


class NanDefault(Tiny):
    """Has a default that is not a number."""

    signals: ClassVar[Any] = {"cost": float("nan")}


class UnusedDataset(Tiny):
    """Asks for a data set and does not use it."""

    dataset_use: ClassVar[Any] = "optional"


class UnknownDatasetUse(Tiny):
    """Does not say how it uses a data set."""

    dataset_use: ClassVar[Any] = "always"


class LoadsOnlyWithDataset(Imitates):
    """Cannot load its state without a data set."""

    def set_extra_state(self, state: State) -> None:
        assert self.dataset is not None, "no data"
        super().set_extra_state(state)


class LosesDatasetState(Imitates):
    """Does not save the state of its data set."""

    def get_extra_state(self) -> State:
        return {name: value for name, value in super().get_extra_state().items() if name != "dataset"}


class Relabels(TinyQ):
    """Learns from other goals, which it needs."""

    world: ClassVar[str] = "rlplug_core.testing.goals:Bits"

    def buffer(self) -> HindsightReplay:
        return HindsightReplay(
            goals_of(self.spec), 3, 400, ReplaySchedule(64, 4, 1, 60), 0.9, self.seeds.child("buffer")
        )


class RelabelsWithoutEnd(Relabels):
    """Bootstraps after terminations, too."""

    def learn(self, batch: Transitions, now: Any, clock: Clock) -> Result:
        endless = torch.full_like(batch.discount, 0.9)
        return super().learn(replace(batch, discount=endless, share=batch.counts), now, clock)

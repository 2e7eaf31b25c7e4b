"""Algorithms for the kit that ask for signals or a data set, rightly and wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from rlplug_core.batches import Rollout
from rlplug_core.clock import Clock
from rlplug_core.types import Result, State
from tests.core.demonstrations import Imitates
from tests.core.fakes import Tiny


class Prices(Tiny):
    """Learns from reward minus cost, and from a signal with two numbers and a default."""

    signals: ClassVar[Any] = {"cost": None, "pair": (0.0, 0.0)}

    def learn(self, batch: Rollout, now: Any, clock: Clock) -> Result:
        cost = batch.extras["cost"] + batch.extras["pair"].sum(-1)
        return super().learn(replace(batch, reward=batch.reward - cost * (batch.weight > 0)), now, clock)


class Unread(Tiny):
    """Names a signal and does not use it."""

    signals: ClassVar[Any] = ("cost",)


class Endless(Tiny):
    """Has a default that is not a number."""

    signals: ClassVar[Any] = {"cost": float("nan")}


class Undrawn(Tiny):
    """Asks for a data set and does not use it."""

    dataset_use: ClassVar[Any] = "optional"


class Misspelt(Tiny):
    """Does not say how it uses a data set."""

    dataset_use: ClassVar[Any] = "always"


class Insists(Imitates):
    """Loads no state without a data set."""

    def set_extra_state(self, state: State) -> None:
        assert self.dataset is not None, "no data"
        super().set_extra_state(state)


class Forgets(Imitates):
    """Leaves the state of the data set out of its own."""

    def get_extra_state(self) -> State:
        return {name: one for name, one in super().get_extra_state().items() if name != "dataset"}

"""The synchronous runner: the loop that everything else is built from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor, Lane
from rlplug_core.loop.events import Meter
from rlplug_core.plugins.transform import configure
from rlplug_core.protocols import Learner
from rlplug_core.seeds import global_state, load_global_state
from rlplug_core.types import Episode, State


def loop(actor: Actor, clock: Clock, meter: Meter, poll: Callable[[], None]) -> None:
    """Act, store, learn, look at the clock, until it is done. What a stop left undone comes first, batches and poll."""
    for lane in actor.lanes:
        train(lane, clock, meter)
    while not clock.stop:
        poll()
        if clock.done:
            break
        turn(actor, clock, meter)


def turn(actor: Actor, clock: Clock, meter: Meter) -> None:
    """One vector step of every lane, and the batches it makes due."""
    for lane, step in actor.step():
        lane.buffer.add(step)
        train(lane, clock, meter)


def train(lane: Lane, clock: Clock, meter: Meter) -> None:
    """Learn from the batches that are due; a stop is honored between two of them."""
    for batch in lane.buffer.batches(clock):
        result = lane.learner.update(batch, clock)
        lane.buffer.feedback(batch, result)
        clock.updates += 1
        meter.add(result)
        if clock.stop:
            return


class Sync:
    """One process, one learner, one actor."""

    name = "sync"

    def __init__(self, actor: Actor, clock: Clock) -> None:
        self.actor, self.clock = actor, clock
        self.learner: Learner[Any] = actor.lane.learner
        self.inexact = actor.env.spec.inexact
        self.meter = Meter()

    def run(self, poll: Callable[[], None]) -> None:
        """Train until the clock is done, calling `poll` after every vector step."""
        loop(self.actor, self.clock, self.meter, poll)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return [(steps, 0, episode) for steps, episode in self.actor.take_episodes()]

    def metrics(self) -> Mapping[str, float]:
        return self.meter.flush()

    def configure(self, settings: Mapping[str, object]) -> None:
        configure(self.actor.env, settings)

    def snapshot(self) -> Learner[Any]:
        return self.learner

    def state_dict(self) -> State:
        return {
            "clock": self.clock.state_dict(),
            "learner": self.learner.state_dict(),
            "buffer": self.actor.lane.buffer.state_dict(),
            "actor": self.actor.state_dict(),
            "meter": self.meter.state_dict(),
            "globals": global_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.learner.load_state_dict(state["learner"])
        self.actor.lane.buffer.load_state_dict(state["buffer"])
        self.actor.load_state_dict(state["actor"])
        self.meter.load_state_dict(state["meter"])
        load_global_state(state["globals"])

    def close(self) -> None:
        self.actor.env.close()

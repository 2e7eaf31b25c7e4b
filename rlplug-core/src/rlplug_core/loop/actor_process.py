"""Run an actor process of the decoupled runner."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from torch import Tensor

from rlplug_core.loop.child_process import CLOSE, fetch, post
from rlplug_core.loop.chunks import views_of_slots, write
from rlplug_core.loop.events import TICK
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.remote_actor import RemoteActor
from rlplug_core.loop.shared_memory import SharedWeights
from rlplug_core.types import State

#: Values of `ActorTask.paused`: actors pause between two chunks, or drop even their current chunk.
PAUSED = 1
OVER = 2


@dataclass(frozen=True)
class ActorTask:
    """The input of an actor process.

    Attributes:
        places, slots: the offsets of a chunk's arrays in a slot, and the slots [slots, bytes] that all processes share.
        weights: published by the learner.
        paused: [1] `PAUSED` or `OVER` while actors must decline permits, else 0.
    """

    words: PlanWords
    rank: int
    places: State
    slots: Tensor
    weights: SharedWeights
    paused: Tensor


class ActorProcess:
    """An actor and its messages: the parent sends permits for chunks, settings, and requests for the state."""

    def __init__(self, task: ActorTask, parent: Connection) -> None:
        self.remote = RemoteActor(task.words, task.rank)
        self.parent = parent
        self.weights = task.weights
        self.slots = views_of_slots(task.places, task.slots)
        self.paused = task.paused.numpy().data
        self.next_tick = 0.0

    def run(self) -> None:
        post(self.parent, ("ready", None))
        while True:
            message = fetch(self.parent)
            if message == CLOSE:
                return self.remote.actor.env.close()
            kind, content = message
            if kind == "act" and self.paused[0]:
                post(self.parent, ("declined", None))
            elif kind == "act":
                self.act(*content)
            elif kind == "state":
                post(self.parent, ("state", self.remote.state_dict()))
            elif kind == "start":
                self.remote.start(*content)
            elif kind == "settings":
                self.remote.configure(content)

    def act(self, slot: int, steps: int, total: int) -> None:
        """Write a chunk of steps into a slot, unless the run is over."""
        version = self.weights.get(self.remote.weights)
        store = self.slots[slot]
        for t, step in enumerate(self.remote.steps(steps, total)):
            write(store, t, step)
            if self.paused[0] == OVER:
                return
            if time.monotonic() >= self.next_tick:
                self.next_tick = time.monotonic() + TICK
                post(self.parent, ("alive", None))
        post(self.parent, ("chunk", (version, *self.remote.end_chunk(steps))))

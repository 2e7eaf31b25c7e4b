"""Run an actor process of the decoupled runner."""

from __future__ import annotations

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from torch import Tensor

from rlplug_core.clock import Clock
from rlplug_core.loop.actor import Actor, Lane
from rlplug_core.loop.chunks import write
from rlplug_core.loop.events import TICK
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.shared_weights import SharedWeights
from rlplug_core.loop.torch_settings import set_torch
from rlplug_core.loop.worker import attend, fetch, post
from rlplug_core.plugins.transform import configure
from rlplug_core.seeds import global_state, load_global_state, seed_globals
from rlplug_core.types import State, tree_map


@dataclass(frozen=True)
class ActorTask:
    """Everything an actor process needs; the plan travels as the words the user typed, so that no class is pickled.

    Attributes:
        values: the options by dotted name.
        places, slots: where the arrays of a chunk lie in a slot, and the slots [slots, bytes] that all processes share.
        weights: where the learner publishes.
        paused: [1] not 0 while permits are to be declined.
    """

    algorithm: str
    env: str
    values: dict[str, Any]
    rank: int
    places: State
    slots: Tensor
    weights: SharedWeights
    paused: Tensor


def work(task: ActorTask, parent: Connection, lifeline: Connection) -> None:
    """Build an actor, tell the parent, do what it says until it ends the process."""
    attend(lambda: _Acting(task, parent).run(), parent, lifeline)


class _Acting:
    """An actor, and its talk with the parent: each message in is a permit for a chunk, or asks for the state."""

    def __init__(self, task: ActorTask, parent: Connection) -> None:
        plan = Plan.make(task.algorithm, task.env, task.values)
        set_torch(plan.options.threads)
        seed_globals(plan.seeds().child("globals", task.rank))
        self.parent, self.weights, self.length = parent, task.weights, plan.chunk_steps
        env = plan.make_env(plan.options.num_envs)
        learner = plan.make_learner(env.spec)
        agent = learner.agent(task.rank, plan.options.actors)
        self.clock = Clock(plan.options.total_timesteps)
        self.actor = Actor(env, Lane(learner, agent, learner.buffer()), self.clock)
        self.actor.reset(plan.seeds().child("env", task.rank).integer())
        self.own = agent.weights()
        self.slots = [tree_map(lambda place, m=memory: place.view(m), task.places) for memory in task.slots.numpy()]
        self.paused = task.paused.numpy().data
        self.begins = True
        self.wake = 0.0

    def run(self) -> None:
        post(self.parent, ("ready", self.actor.env.spec.inexact))
        while True:
            kind, content = fetch(self.parent)
            if kind == "act" and self.paused[0]:
                post(self.parent, ("declined", None))
            elif kind == "act":
                self.act(*content)
            elif kind == "state":
                post(self.parent, ("state", {"actor": self.actor.state_dict(), "globals": global_state()}))
            elif kind == "load" and content is not None:
                self.load(content)
            elif kind == "settings" and content:
                configure(self.actor.env, content)

    def load(self, state: State) -> None:
        self.actor.load_state_dict(state["actor"])
        load_global_state(state["globals"])
        self.begins = bool(self.actor.env.spec.inexact)

    def act(self, slot: int, steps: int, total: int) -> None:
        """Act a chunk into a slot, at the env step and with the total that the whole run has come to."""
        self.clock.steps, self.clock.total = steps, total
        version, store = self.weights.get(self.own), self.slots[slot]
        for t in range(self.length):
            for _, step in self.actor.step():
                write(store, t, step)
            if time.monotonic() >= self.wake:
                self.wake = time.monotonic() + TICK
                post(self.parent, ("alive", None))
        episodes = [episode for _, episode in self.actor.take_episodes()]
        post(self.parent, ("chunk", (version, self.begins, self.clock.steps - steps, episodes)))
        self.begins = False

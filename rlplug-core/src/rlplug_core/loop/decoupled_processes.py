"""The learner's side of actor processes: start them, read their messages, replace and end them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.multiprocessing  # registers how tensors in shared memory travel

from rlplug_core.clock import Clock
from rlplug_core.errors import warn
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.actor_process import OVER, PAUSED, ActorProcess, ActorTask
from rlplug_core.loop.child_process import GLANCE, Child, ChildLost, close, wait_for_messages
from rlplug_core.loop.chunk_queue import ChunkQueue
from rlplug_core.loop.chunks import Places, chunk_arrays, views_of_slots
from rlplug_core.loop.decoupled import early_loss
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.process_spawner import start_server_early
from rlplug_core.loop.shared_memory import SharedWeights, share_tensor
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.types import Chunk, Episode, State, Step

#: The most chunks that an actor may be ahead of the learner, for any `max_lag`; shared memory has room for them.
AHEAD = 16


@dataclass
class Seat:
    """An actor's place in the fleet, and the process that has it.

    Attributes:
        generation: the number of processes that had it before in this run.
        delivered: whether the process has sent a chunk.
        asked: whether it was asked for its state.
    """

    child: Child
    generation: int = 0
    delivered: bool = False
    asked: bool = False


class ActorProcesses:
    """The learner's end of the process link.

    Chunks are in slots of shared memory. A pipe carries the number of a slot to the actor, as a permit for one chunk,
    and a message back when the chunk is written. So actors that are ahead wait for the learner.

    There is a pipe for each actor and no lock, so a process that is killed leaves nothing locked; another one takes its
    place. Checkpoints contain the whole state.
    """

    inexact = "chunks of actor processes arrive in any order; --inline is exact"

    def __init__(
        self,
        plan: Plan,
        learner: AnyLearner,
        clock: Clock,
        probe: Env,
    ) -> None:
        self.plan = plan
        self.clock = clock
        start_server_early()
        self.weights = learner.agent().weights()
        self.queue = ChunkQueue(plan.max_lag, AHEAD, plan.options.actors, clock)
        self.permits = self.queue.permits
        self.task = self._make_task(example(learner, probe))
        self.slots = views_of_slots(self.task.places, self.task.slots)
        self.has_published = False
        self.checked = time.monotonic()
        #: The settings of controllers so far.
        self.settings: dict[str, object] = {}
        self.saved: list[State | None] = [None] * plan.options.actors
        self.seats = [Seat(self._start(rank, 0)) for rank in range(plan.options.actors)]

    def _make_task(self, step: Step) -> ActorTask:
        """Allocate the shared memory for chunks of steps like `step`; return the input of the actors."""
        places = Places()
        layout = chunk_arrays(step, self.plan.chunk_steps, places)
        size = (len(self.permits.free), places.size)
        return ActorTask(
            words=PlanWords.of(self.plan, {"device": self.plan.options.actor_device}),
            rank=0,
            places=layout,
            slots=share_tensor(torch.zeros(size, dtype=torch.uint8)),
            weights=SharedWeights.like(self.weights),
            paused=share_tensor(torch.zeros(1, dtype=torch.int64)),
        )

    @property
    def version(self) -> int:
        return self.queue.version

    def publish(self, weights: State) -> None:
        self.task.weights.put(weights, self.version + 1)
        self.queue.finish_chunk()

    def receive(self) -> list[Chunk]:
        """Return the next chunk for the learner; an empty list if none arrives in time."""
        if not self.has_published:
            self.task.weights.put(self.weights, self.version)
            self.has_published = True
        self._grant()
        self._read_messages(0.0 if self.permits.next() else GLANCE)
        return self.queue.take()

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return self.queue.episodes()

    def configure(self, settings: Mapping[str, object]) -> None:
        """Send the settings to the actors, which read them between two chunks."""
        self.settings = dict(settings)
        for seat in self.seats:
            if seat.child.ready:
                self._send(seat, ("settings", self.settings))

    def state_dict(self) -> State:
        """Return the state at a moment when every actor pauses between two chunks or is not ready yet."""
        self.task.paused[0] = PAUSED
        self._read_until(lambda seat: seat.child.state is not None or not seat.child.ready)
        states = [
            seat.child.state if seat.child.ready else self.saved[seat.child.rank]
            for seat in self.seats
        ]
        self.task.paused[0] = 0
        for seat in self.seats:
            seat.child.state = None
            seat.asked = False
        generations = [seat.generation for seat in self.seats]
        return {"all": states, "generations": generations, **self.queue.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.saved = list(state["all"])
        for seat, generation in zip(
            self.seats, state.get("generations", [0] * len(self.seats)), strict=True
        ):
            seat.generation = generation
            # The saved run had replaced this actor, and the new one had no state yet: start one with its seed.
            if generation and self.saved[seat.child.rank] is None:
                seat.child.end()
                seat.child = self._start(seat.child.rank, generation)
        self.queue.load_state_dict(state)

    def close(self) -> None:
        self.task.paused[0] = OVER
        close([seat.child for seat in self.seats])

    def _start(self, rank: int, generation: int) -> Child:
        """Start a process for the actor `rank`."""
        task = replace(self.task, rank=rank, words=self.task.words.for_actor(rank, generation))
        return Child("actor", rank, ActorProcess, task, self.plan.options.worker_timeout)

    def _grant(self) -> None:
        """Send the available permits."""
        while permit := self.queue.grant(
            seat.child.rank for seat in self.seats if seat.child.ready
        ):
            self._send(
                self.seats[permit.source],
                ("act", (permit.slot, self.clock.steps, self.clock.total)),
            )

    def _send(self, seat: Seat, message: tuple[str, object]) -> None:
        """Send a message to an actor; replace the actor if it has ended."""
        try:
            seat.child.send(message)
        except ChildLost as lost:
            self._replace(seat, lost)

    def _read_until(self, reached: Callable[[Seat], bool]) -> None:
        """Ask every actor that is ready for its state; read messages until `reached` is true for each actor."""
        while not all(map(reached, self.seats)):
            for seat in self.seats:
                if seat.child.ready and not seat.asked:
                    seat.asked = True
                    self._send(seat, ("state", None))
            self._read_messages(GLANCE)

    def _read_messages(self, timeout: float) -> None:
        """Read the messages that have arrived, or wait `timeout` seconds for one; then check the actors."""
        for child in wait_for_messages([seat.child for seat in self.seats], timeout):
            seat = self.seats[child.rank]
            try:
                message = child.receive()
            except ChildLost as lost:
                self._replace(seat, lost)
            else:
                self._handle_message(seat, *message)
        if time.monotonic() >= self.checked + GLANCE:  # a check takes microseconds
            before = self.checked
            self.checked = time.monotonic()
            for seat in self.seats:
                self._check(seat, self.checked - before)

    def _handle_message(self, seat: Seat, kind: str, content: Any) -> None:
        rank = seat.child.rank
        if kind == "chunk":
            self._take_chunk(seat, *content)
        elif kind == "declined":
            self.permits.end(self.permits.acting(rank)[0])
        elif kind == "state":
            seat.child.state = content
        elif kind == "ready":
            self._send(seat, ("start", (self.settings, self.saved[rank], self.clock.steps)))
            seat.child.ready = True

    def _take_chunk(
        self,
        seat: Seat,
        version: int,
        begins: bool,
        count: int,
        episodes: list[Episode],
    ) -> None:
        permit = self.permits.acting(seat.child.rank)[0]
        self.queue.receive_chunk(
            Chunk(permit.source, version, self.slots[permit.slot], begins), count, episodes
        )
        seat.delivered = True

    def _check(self, seat: Seat, elapsed: float) -> None:
        child = seat.child
        must_send = not child.ready or seat.asked or bool(self.permits.acting(child.rank))
        try:
            child.check(elapsed, must_send)
        except ChildLost as lost:
            self._replace(seat, lost)

    def _replace(self, seat: Seat, lost: ChildLost) -> None:
        """Give the seat to a new process; the old one's current chunk is lost.

        Raises:
            WorkerFailed: the old one has never sent a chunk, so a new one would probably fail, too.
        """
        rank = seat.child.rank
        if not seat.delivered:
            raise early_loss(lost, seat.child.ready)
        warn(f"{lost.details}; another one takes its place")
        self.permits.forget_source(rank)
        seat.child.end()
        self.saved[rank] = None
        seat.generation += 1
        seat.child = self._start(rank, seat.generation)
        seat.delivered = False
        seat.asked = False


def example(learner: AnyLearner, env: Env) -> Step:
    """Return a step with the shapes and types of all later ones, from an environment that is then closed."""
    actor = Actor(env, learner, learner.agent(), learner.buffer(), Clock(1))
    actor.reset(0)
    step = actor.step()
    env.close()
    return step

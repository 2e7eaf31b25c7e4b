"""Actor processes, from the side of the learner: start, read messages, replace, end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.multiprocessing  # registers how tensors in shared memory travel

from rlplug_core.clock import Clock
from rlplug_core.errors import WorkerFailed, warn
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.actor_process import OVER, PAUSED, ActorTask, work
from rlplug_core.loop.async_processes import GLANCE, Remote, close, patience, silence
from rlplug_core.loop.chunk_queue import Traffic
from rlplug_core.loop.chunks import Places, chunk_arrays
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.process_spawner import prepare
from rlplug_core.loop.shared_memory import SharedWeights, share_tensor
from rlplug_core.loop.worker import check_message, fetch, post
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.types import Chunk, Episode, State, Step, tree_map

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

    remote: Remote
    generation: int = 0
    delivered: bool = False
    asked: bool = False


class ActorProcesses:
    """The learner's end of the process link. Chunks are in slots of shared memory; only the number of a slot is sent
    through pipes, as a permit to the actor and back with the chunk, so actors that are ahead wait for the learner.

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
        prepare()
        self.weights = learner.agent().weights()
        self.traffic = Traffic(plan.max_lag, AHEAD, plan.options.actors, clock)
        self.permits = self.traffic.permits
        self.task = self._make_task(example(learner, probe))
        self.slots = [
            tree_map(lambda place, m=memory: place.view(m), self.task.places)
            for memory in self.task.slots.numpy()
        ]
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
            algorithm=self.plan.algorithm,
            env=self.plan.env,
            values={**self.plan.flat, "device": self.plan.options.actor_device},
            rank=0,
            places=layout,
            slots=share_tensor(torch.zeros(size, dtype=torch.uint8)),
            weights=SharedWeights.like(self.weights),
            paused=share_tensor(torch.zeros(1, dtype=torch.int64)),
        )

    @property
    def version(self) -> int:
        return self.traffic.version

    def publish(self, weights: State) -> None:
        self.task.weights.put(weights, self.version + 1)
        self.traffic.finish_chunk()

    def receive(self) -> list[Chunk]:
        """Return the next chunk for the learner; an empty list if none arrives in time."""
        if not self.has_published:
            self.task.weights.put(self.weights, self.version)
            self.has_published = True
        self._grant()
        self._read_messages(0.0 if self.permits.next() else GLANCE)
        return self.traffic.take()

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return self.traffic.episodes()

    def configure(self, settings: Mapping[str, object]) -> None:
        """Send the settings to the actors, which read them between two chunks."""
        self.settings = dict(settings)
        for seat in self.seats:
            if seat.remote.ready:
                self._send(seat, ("settings", self.settings))

    def state_dict(self) -> State:
        """Return the state at a moment when every actor pauses between two chunks or is not ready yet."""
        self.task.paused[0] = PAUSED
        self._read_until(lambda seat: seat.remote.state is not None or not seat.remote.ready)
        states = [
            seat.remote.state if seat.remote.ready else self.saved[seat.remote.rank]
            for seat in self.seats
        ]
        self.task.paused[0] = 0
        for seat in self.seats:
            seat.remote.state = None
            seat.asked = False
        generations = [seat.generation for seat in self.seats]
        return {"all": states, "generations": generations, **self.traffic.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.saved = list(state["all"])
        for seat, generation in zip(
            self.seats, state.get("generations", [0] * len(self.seats)), strict=True
        ):
            seat.generation = generation
            # The process was replaced, and the new one had not started.
            if generation and self.saved[seat.remote.rank] is None:
                seat.remote.end()
                seat.remote = self._start(seat.remote.rank, generation)
        self.traffic.load_state_dict(state)

    def close(self) -> None:
        self.task.paused[0] = OVER
        close([seat.remote for seat in self.seats])

    def _start(self, rank: int, generation: int) -> Remote:
        """Start a process for the actor `rank`; a replacement draws other random numbers."""
        values = self.task.values
        if generation:
            values = {
                **values,
                "seed": self.plan.seeds().child(f"actor {rank}", generation).integer(),
            }
        return Remote(rank, work, replace(self.task, rank=rank, values=values))

    def _grant(self) -> None:
        """Send the available permits."""
        while permit := self.traffic.grant(
            seat.remote.rank for seat in self.seats if seat.remote.ready
        ):
            self._send(
                self.seats[permit.source],
                ("act", (permit.slot, self.clock.steps, self.clock.total)),
            )

    def _send(self, seat: Seat, message: tuple[str, object]) -> None:
        """Send a message to an actor; from now on it must send messages."""
        seat.remote.silent = 0.0
        try:
            post(seat.remote.connection, message)
        except OSError:
            self._replace(seat, seat.remote.describe_exit())

    def _read_until(self, reached: Callable[[Seat], bool]) -> None:
        """Read messages until `reached` is true for each actor."""
        while not all(map(reached, self.seats)):
            for seat in self.seats:
                if seat.remote.ready and not seat.asked:
                    seat.asked = True
                    self._send(seat, ("state", None))
            self._read_messages(GLANCE)

    def _read_messages(self, timeout: float) -> None:
        seats = {seat.remote.connection: seat for seat in self.seats}
        for connection in wait(list(seats), timeout):
            assert isinstance(connection, Connection)
            seat = seats[connection]
            try:
                kind, content = fetch(connection)
            except (EOFError, OSError):
                self._replace(seat, seat.remote.describe_exit())
                continue
            seat.remote.silent = 0.0
            self._handle_message(seat, kind, content)
        if time.monotonic() >= self.checked + GLANCE:  # a check takes microseconds
            before = self.checked
            self.checked = time.monotonic()
            for seat in self.seats:
                self._check(seat, self.checked - before)

    def _handle_message(self, seat: Seat, kind: str, content: Any) -> None:
        rank = seat.remote.rank
        if kind == "chunk":
            self._take_chunk(seat, *content)
        elif kind == "declined":
            self.permits.end(self.permits.acting(rank)[0])
        elif kind == "state":
            seat.remote.state = content
        elif kind == "ready":
            self._send(seat, ("settings", self.settings))
            if self.saved[rank] is not None:
                self._send(seat, ("load", (self.saved[rank], self.clock.steps)))
                self._send(seat, ("settings", self.settings))
            seat.remote.ready = True
        else:
            check_message(f"actor {rank}", kind, content)

    def _take_chunk(
        self,
        seat: Seat,
        version: int,
        begins: bool,
        count: int,
        episodes: list[Episode],
    ) -> None:
        permit = self.permits.acting(seat.remote.rank)[0]
        self.traffic.receive_chunk(
            Chunk(permit.source, version, self.slots[permit.slot], begins), count, episodes
        )
        seat.delivered = True

    def _check(self, seat: Seat, elapsed: float) -> None:
        remote = seat.remote
        if remote.connection.poll():
            return
        if remote.process.exitcode is not None:  # its own child processes may hold its pipe open
            self._replace(seat, remote.describe_exit())
            return
        limit = patience(remote.ready, self.plan.options.worker_timeout)
        overdue = remote.is_overdue(elapsed, limit)
        is_awaited = not remote.ready or seat.asked or bool(self.permits.acting(remote.rank))
        if overdue and is_awaited:
            self._replace(seat, silence(remote.ready, limit), " (--worker-timeout waits longer)")

    def _replace(self, seat: Seat, how: str, advice: str = "") -> None:
        """Give the seat to a new process; the old one's current chunk is lost.

        Raises:
            WorkerFailed: the old one has never sent a chunk, so a new one would probably fail, too.
        """
        rank = seat.remote.rank
        if not seat.delivered:
            moment = (
                "" if advice and not seat.remote.ready else " before it had acted a whole chunk"
            )
            raise WorkerFailed(f"actor {rank} {how}{moment}{advice}", f"actor {rank} {how}")
        warn(f"actor {rank} {how}; another one takes its place")
        self.permits.forget_source(rank)
        seat.remote.end()
        self.saved[rank] = None
        seat.generation += 1
        seat.remote = self._start(rank, seat.generation)
        seat.delivered = False
        seat.asked = False


def example(learner: AnyLearner, env: Env) -> Step:
    """Return a step with the shapes and types of all later ones, from an environment that is then closed."""
    actor = Actor(env, learner, learner.agent(), learner.buffer(), Clock(1))
    actor.reset(0)
    step = actor.step()
    env.close()
    return step

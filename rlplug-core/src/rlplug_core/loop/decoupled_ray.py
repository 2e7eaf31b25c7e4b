"""The learner's side of actors on Ray: place them, read their chunks, replace and end them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from rlplug_core.clock import Clock
from rlplug_core.errors import WorkerFailed, plain, warn
from rlplug_core.loop.actor_placement import LOCAL
from rlplug_core.loop.child_process import (
    GLANCE,
    WAIT_LONGER,
    ChildLost,
    check_message,
    describe_silence,
    silence_limit,
)
from rlplug_core.loop.chunk_queue import ChunkQueue
from rlplug_core.loop.chunks import unpack
from rlplug_core.loop.decoupled import early_loss
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.plan_words import PlanWords
from rlplug_core.loop.ray_actor import RayActor
from rlplug_core.loop.ray_cluster import (
    check_nodes,
    check_room,
    join,
    leave,
    packages_of_nodes,
    reserve,
)
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.types import Chunk, Episode, State, tree_map

#: The most chunks that an actor may be ahead of the learner, for any `max_lag`: the current and the next one.
AHEAD = 2
#: How often in a row an actor may be lost before it has sent a chunk.
LOSSES = 3


@dataclass
class Seat:
    """An actor's place in the fleet, and the Ray handle of the actor that has it.

    Attributes:
        generation: the number of actors that had it before in this run.
        losses: how many in a row were lost without a chunk.
        delivered: whether any has sent a chunk.
        acted: how many vector steps it had made at the last heartbeat.
        silent: seconds without a sign of life.
    """

    rank: int
    handle: Any
    generation: int = 0
    losses: int = 0
    delivered: bool = False
    ready: bool = False
    acted: int = 0
    silent: float = 0.0
    state: State | None = None

    @property
    def name(self) -> str:
        return f"actor {self.rank}"


class RayActors:
    """The learner's end of the Ray link. Weights go into Ray's store once per version, on demand, and
    every node fetches them once. Answers of a lost actor are dropped.

    Placing, transport and the detection of lost nodes are Ray's. Checkpoints contain the whole state.

    Attributes:
        put: the version of the weights in Ray's store, and their reference.
    """

    inexact = "chunks of actors arrive in any order; --inline is exact"

    def __init__(
        self,
        plan: Plan,
        learner: AnyLearner,
        clock: Clock,
        probe: Env,
    ) -> None:
        probe.close()
        options = plan.options
        self.plan = plan
        self.words = PlanWords.of(plan, {"device": "cpu", "on": LOCAL, "gpus": 0})
        self.clock = clock
        self.weights = learner.agent().weights()
        self.queue = ChunkQueue(plan.max_lag, AHEAD, options.actors, clock)
        self.calls: dict[Any, Seat] = {}
        self.heartbeats: dict[Any, Seat] = {}
        self.saved: list[State | None] = [None] * options.actors
        #: The settings of controllers so far.
        self.settings: dict[str, object] = {}
        self.put: tuple[int, Any] = (-1, None)
        self.checked = time.monotonic()
        self.has_started = False
        join(options.on, options.actors * options.cpus_per_actor)
        try:
            check_room(options.actors, options.cpus_per_actor)
            check_nodes(packages_of_nodes(plan))
            self.gpus = reserve(options.gpus)
            self.kind = _actor_class(options.cpus_per_actor)
            self.seats = [Seat(rank, self.kind.remote()) for rank in range(options.actors)]
        except BaseException:  # an interrupt too: this process must not stay in the cluster of a run that never started
            leave()
            raise

    @property
    def version(self) -> int:
        return self.queue.version

    def publish(self, weights: State) -> None:
        self.queue.finish_chunk()

    def receive(self) -> list[Chunk]:
        """Return the next chunk for the learner; an empty list if none arrives in time."""
        self._begin()
        self._grant()
        self._read_messages(0.0 if self.queue.permits.next() else GLANCE)
        return self.queue.take()

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return self.queue.episodes()

    def configure(self, settings: Mapping[str, object]) -> None:
        """Send the settings to the actors, which read them between two chunks."""
        self.settings = dict(settings)
        for seat in self.seats:
            if seat.ready:
                self._call(seat, "configure", settings=self.settings)

    def state_dict(self) -> State:
        """Return the state at a moment when every actor pauses between two chunks or is not ready yet."""
        while any(self.queue.permits.acting(seat.rank) for seat in self.seats):
            self._read_messages(GLANCE)
        asked = [(seat, seat.generation) for seat in self.seats if seat.ready]
        for seat, _ in asked:
            seat.state = None
            self._call(seat, "state")
        while any(
            seat.state is None and seat.generation == generation for seat, generation in asked
        ):
            self._read_messages(GLANCE)
        return {
            "all": [
                self.saved[seat.rank] if seat.state is None else seat.state for seat in self.seats
            ],
            "generations": [seat.generation for seat in self.seats],
            **self.queue.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.saved = list(state["all"])
        for seat, generation in zip(
            self.seats, state.get("generations", [0] * len(self.seats)), strict=True
        ):
            seat.generation = generation
        self.queue.load_state_dict(state)

    def close(self) -> None:
        for seat in self.seats:
            ray.kill(seat.handle)
        leave()

    def _begin(self) -> None:
        """Build all actors at the first call; until then, the state that they continue from may be loaded."""
        if not self.has_started:
            self.has_started = True
            self.checked = time.monotonic()
            for seat in self.seats:
                self._build(seat, self.saved[seat.rank])

    def _build(self, seat: Seat, state: State | None) -> None:
        """Build an actor."""
        self._call(
            seat,
            "build",
            words=self.words.for_actor(seat.rank, seat.generation),
            rank=seat.rank,
            settings=self.settings,
            state=state,
            steps=self.clock.steps,
        )

    def _grant(self) -> None:
        while permit := self.queue.grant(seat.rank for seat in self.seats if seat.ready):
            self._call(
                self.seats[permit.source],
                "act",
                weights=self._weights(),
                version=self.version,
                steps=self.clock.steps,
                total=self.clock.total,
            )

    def _weights(self) -> object:
        """Return the weights of the current version in Ray's store."""
        if self.put[0] != self.version:
            arrays = tree_map(lambda tensor: tensor.detach().cpu().numpy(), dict(self.weights))
            self.put = self.version, ray.put(arrays)
        return self.put[1]

    def _call(self, seat: Seat, method: str, **arguments: object) -> None:
        """Call a method of the seat's actor; Ray carries the arguments there."""
        seat.silent = 0.0
        self.calls[getattr(seat.handle, method).remote(**arguments)] = seat

    def _read_messages(self, timeout: float) -> None:
        """Read all answers; wait for one if there is none."""
        pending = [*self.calls, *self.heartbeats]
        if pending:
            ray.wait(pending, timeout=timeout)
            done, _ = ray.wait(pending, num_returns=len(pending), timeout=0)
            for answer in done:
                self._take_answer(answer)
        if time.monotonic() >= self.checked + GLANCE:
            before = self.checked
            self.checked = time.monotonic()
            for seat in self.seats:
                self._check(seat, self.checked - before)

    def _take_answer(self, answer: object) -> None:
        heartbeat = answer in self.heartbeats
        seat = (self.heartbeats if heartbeat else self.calls).pop(answer, None)
        if seat is None:  # of an actor that was lost
            return
        try:
            content = ray.get(answer)
        except RayTaskError as error:
            message = plain(str(error.cause or error))
            raise WorkerFailed(
                f"{seat.name} could not be started on a node: {message}", str(error)
            ) from error
        except RayError as error:
            self._replace(seat, ChildLost(seat.name, f"was lost ({type(error).__name__})"))
        else:
            if not heartbeat:
                self._handle_message(seat, *content)
            elif content != seat.acted:
                seat.acted = content
                seat.silent = 0.0

    def _handle_message(self, seat: Seat, kind: str, content: Any) -> None:
        seat.silent = 0.0
        if kind == "chunk":
            version, data, begins, count, episodes = content
            chunk = Chunk(seat.rank, version, unpack(data), begins)
            self.queue.receive_chunk(chunk, count, [Episode(*fields) for fields in episodes])
            seat.delivered = True
            seat.losses = 0
        elif kind == "state":
            seat.state = content
        elif kind == "ready":
            seat.ready = True
            # The settings may have changed since the actor started.
            self._call(seat, "configure", settings=self.settings)
        else:
            check_message(seat.name, kind, content)

    def _check(self, seat: Seat, elapsed: float) -> None:
        """Ask a silent actor for its number of steps; replace one that has not stepped for too long.

        Replacements that Ray has not placed yet may wait for a free node without a limit.
        """
        is_awaited = any(called is seat for called in self.calls.values())
        if not is_awaited or (seat.delivered and not seat.ready):
            return
        limit = silence_limit(seat.ready, self.plan.options.worker_timeout)
        # A late check means that this process was stopped.
        seat.silent += min(elapsed, limit / 10)
        if seat.silent > limit:
            how = describe_silence(seat.ready, limit)
            self._replace(seat, ChildLost(seat.name, how, WAIT_LONGER))
        elif (
            seat.ready
            and seat.silent > limit / 4
            and all(called is not seat for called in self.heartbeats.values())
        ):
            call = seat.handle.heartbeat.options(concurrency_group="heartbeat").remote()
            self.heartbeats[call] = seat

    def _replace(self, seat: Seat, lost: ChildLost) -> None:
        """Give the seat to a new actor; the old one's current chunk is lost.

        Raises:
            WorkerFailed: no actor has ever sent a chunk, or several in a row have not, so another would probably fail,
                too.
        """
        seat.losses += 1
        if not seat.delivered or seat.losses > LOSSES:
            raise early_loss(lost, seat.ready)
        warn(f"{lost.details}; another one takes its place")
        self.queue.permits.forget_source(seat.rank)
        for calls in (self.calls, self.heartbeats):
            for call in [call for call, called in calls.items() if called is seat]:
                del calls[call]
        ray.kill(seat.handle)
        seat.ready = False
        seat.acted = 0
        seat.silent = 0.0
        seat.state = None
        seat.generation += 1
        self.saved[seat.rank] = None
        seat.handle = self.kind.remote()
        self._build(seat, None)


def _actor_class(cpus: float) -> Any:
    """Return `RayActor` as Ray's class of actors, each with so many CPUs reserved."""
    options = {"num_cpus": cpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    return ray.remote(**options, concurrency_groups={"heartbeat": 1})(RayActor)

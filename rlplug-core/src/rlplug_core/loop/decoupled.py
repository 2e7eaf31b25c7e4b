"""The decoupled runner: actors send chunks of steps over a link, the learner learns from them and publishes weights.

A version of the weights is the learner's state after a number of chunks. The policy lag of a chunk is how many
versions the learner is ahead of the version that acted in it (Espeholt et al., 2018, arXiv:1802.01561).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rlplug_core.clock import Clock
from rlplug_core.errors import WorkerFailed
from rlplug_core.loop.child_process import ChildLost
from rlplug_core.loop.chunks import chunk_state, read
from rlplug_core.loop.sync import Meter, train
from rlplug_core.protocols import AnyLearner, Link, Stateful, SupportsSources
from rlplug_core.seeds import global_state, load_global_state
from rlplug_core.types import Chunk, Episode, State


class Fleet(Link, Stateful, Protocol):
    """The learner's end of a link, and its actors; the clock counts the steps that it hands over."""

    #: Why a resumed run would not be bit-exact, or "".
    inexact: str

    @property
    def version(self) -> int:
        """Return how often weights were published."""
        ...

    def episodes(self) -> Sequence[tuple[int, int, Episode]]: ...
    def configure(self, settings: Mapping[str, object]) -> None: ...
    def close(self) -> None: ...


class Decoupled:
    """One learner, and actors in the same process, in other processes or on other machines."""

    name = "decoupled"

    def __init__(
        self,
        learner: AnyLearner,
        buffer: SupportsSources,
        fleet: Fleet,
        clock: Clock,
        on_device: bool = False,
    ) -> None:
        #: Whether episodes and observations stay on a device until they are read.
        self.on_device = on_device
        self.learner = learner
        self.buffer = buffer
        self.fleet = fleet
        self.clock = clock
        self.inexact = fleet.inexact
        self.agent = learner.agent()
        self.meter = Meter()
        self.lags: list[int] = []
        #: The current chunk, and how many of its steps are in the buffer.
        self.chunk: Chunk | None = None
        self.steps_read = 0

    def run(self, poll: Callable[[], None]) -> None:
        self._learn()
        while not self.clock.stop:
            poll()
            if self.clock.done:
                break
            for chunk in self.fleet.receive():
                self._take(chunk)

    def _take(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.steps_read = 0
        self.lags.append(self.fleet.version - chunk.version)
        if chunk.begins:
            self.buffer.restart_source(chunk.source)
        self._learn()

    def _learn(self) -> None:
        """Learn from the rest of the chunk, with every batch that is ready; publish weights after the chunk."""
        train(self.learner, self.buffer, self.clock, self.meter)
        while self.chunk is not None and not self.clock.stop:
            if self.steps_read == len(self.chunk.data["ended"]):
                self.chunk = None
                self.fleet.publish(self.agent.weights())
            else:
                self.buffer.add(read(self.chunk.data, self.steps_read), self.chunk.source)
                self.steps_read += 1
                train(self.learner, self.buffer, self.clock, self.meter)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        return self.fleet.episodes()

    def metrics(self) -> Mapping[str, float]:
        lags = self.lags
        self.lags = []
        if not lags:
            return self.meter.flush()
        lag = {"perf/policy_lag": sum(lags) / len(lags), "perf/policy_lag_max": float(max(lags))}
        return {**self.meter.flush(), **lag}

    def configure(self, settings: Mapping[str, object]) -> None:
        self.fleet.configure(settings)

    def snapshot(self) -> AnyLearner:
        return self.learner

    def state_dict(self) -> State:
        fleet = self.fleet.state_dict()  # first: later chunks change only it
        return {
            "clock": self.clock.state_dict(),
            "learner": self.learner.state_dict(),
            "buffer": self.buffer.state_dict(),
            "actors": fleet,
            "chunk": {
                "chunk": None if self.chunk is None else chunk_state(self.chunk),
                "taken": self.steps_read,
            },
            "meter": {"updates": self.meter.state_dict(), "lags": list(self.lags)},
            "globals": global_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.learner.load_state_dict(state["learner"])
        self.buffer.load_state_dict(state["buffer"])
        self.fleet.load_state_dict(state["actors"])
        saved = state["chunk"]["chunk"]
        self.chunk = None if saved is None else Chunk(**saved)
        self.steps_read = state["chunk"]["taken"]
        self.meter.load_state_dict(state["meter"]["updates"])
        self.lags = list(state["meter"]["lags"])
        load_global_state(state["globals"])

    def close(self) -> None:
        self.fleet.close()


def early_loss(lost: ChildLost, ready: bool) -> WorkerFailed:
    """Return the error of an actor that was lost before its first chunk: another one would probably be lost, too."""
    moment = "" if lost.advice and not ready else " before it had acted a whole chunk"
    return WorkerFailed(f"{lost.details}{moment}{lost.advice}", lost.details)

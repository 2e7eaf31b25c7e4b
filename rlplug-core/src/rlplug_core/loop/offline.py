"""The runner of runs that learn only from a data set: its clock counts updates, no environment is stepped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlplug_core.buffers.recorded import RecordedReplay
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.sync import Meter
from rlplug_core.protocols import AnyLearner
from rlplug_core.seeds import global_state, load_global_state
from rlplug_core.types import Episode, State


class Offline:
    """One process, one learner, one data set; every batch is a step of the clock."""

    name = "offline"
    on_device = False
    inexact = ""

    def __init__(
        self,
        learner: AnyLearner,
        buffer: RecordedReplay,
        clock: Clock,
    ) -> None:
        self.learner = learner
        self.buffer = buffer
        self.clock = clock
        self.meter = Meter()

    def run(self, poll: Callable[[], None]) -> None:
        """Train until the clock is done, calling `poll` before every update and at the end."""
        while not self.clock.stop:
            poll()
            if self.clock.done:
                break
            for batch in self.buffer.batches(self.clock):
                result = self.learner.update(batch, self.clock)
                self.buffer.feedback(batch, result)
                self.clock.updates += 1
                self.clock.advance(1)
                self.meter.add(result)

    def episodes(self) -> Sequence[tuple[int, int, Episode]]:
        """Return an empty tuple, because nothing is played."""
        return ()

    def metrics(self) -> Mapping[str, float]:
        return self.meter.flush()

    def configure(self, settings: Mapping[str, object]) -> None:
        """Raise UsageError: an offline run has no training environment."""
        raise UsageError(
            f"a controller sets {', '.join(settings)} of the environments, and an offline run has none; leave it out"
        )

    def snapshot(self) -> AnyLearner:
        return self.learner

    def state_dict(self) -> State:
        return {
            "clock": self.clock.state_dict(),
            "learner": self.learner.state_dict(),
            "buffer": self.buffer.state_dict(),
            "meter": self.meter.state_dict(),
            "globals": global_state(),
        }

    def load_state_dict(self, state: State) -> None:
        self.clock.load_state_dict(state["clock"])
        self.learner.load_state_dict(state["learner"])
        self.buffer.load_state_dict(state["buffer"])
        self.meter.load_state_dict(state["meter"])
        load_global_state(state["globals"])

    def close(self) -> None:
        """Do nothing; nothing is open."""

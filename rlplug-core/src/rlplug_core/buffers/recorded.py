"""Replay of a data set, by itself or mixed with a run's own steps. Checkpoints name the data set by its hash."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from rlplug_core.batches import Transitions
from rlplug_core.buffers.dataset import Fitted
from rlplug_core.buffers.mixture import ReplayMixture
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.buffers.sampled import SampledReplay
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.types import Array, Result, State, Step


class RecordedReplay:
    """A replay buffer with only a data set; it always has a batch.

    Args:
        replay: an empty replay that samples the batches; its capacity becomes that of the data set.
        data: the data set.

    Raises:
        UsageError: the replay uses sampled eviction.
    """

    def __init__(self, replay: ReplayBuffer, data: Fitted) -> None:
        if isinstance(replay, SampledReplay):
            raise UsageError("a data set evicts nothing; leave priority.eviction at oldest")
        self.replay = replay
        self.sha256 = data.sha256
        padding = replay.span - 1
        replay.capacity = len(data) + padding
        # The data set is complete, so learning starts at once.
        replay.pace = replace(replay.pace, learning_starts=replay.capacity)
        for step in data.steps():
            replay.add(step)
        # Copies of the last step complete the last n-step windows. Its episode ends there, so no return includes them.
        for _ in range(padding):
            replay.add(step)
        replay.due_batches = 0

    def add(self, step: Step, source: int = 0) -> None:
        """Raise UsageError: a data set does not change."""
        raise UsageError("a data set cannot store steps of a run, because its hash identifies it")

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        """Yield one batch."""
        self.replay.gamma = self.replay.discount(clock.progress)
        yield self.replay.draw(self.replay.pace.batch_size, clock)

    def feedback(self, batch: Transitions, result: Result) -> None:
        self.replay.feedback(batch, result)

    def state_dict(self) -> State:
        """Return the state without transitions, but with the hash of the data set and the learner's extras."""
        extras = self._learner_extras()
        state = {**self.replay.state_dict(), "data": self.sha256}
        return {**state, "extras": extras} if extras else state

    def load_state_dict(self, state: State) -> None:
        if state["data"] != self.sha256:
            raise ValueError(
                f"the state belongs to a data set of SHA-256 {state['data']}, not {self.sha256}"
            )
        assert self.replay.data is not None
        self.replay.load_state_dict({**state, "data": self.replay.data.state_dict()})
        for name, stored in self._learner_extras().items():
            stored[:] = state["extras"][name]

    def _learner_extras(self) -> dict[str, Array]:
        """Return the stored extras [T * N, ...] that the learner writes, by name."""
        assert self.replay.data is not None
        learner_extras = self.replay.learner_extras
        names = () if learner_extras is None else learner_extras.values
        return {name: self.replay.data.flat["extras"][name] for name in names}


class WarmReplay:
    """A replay of a run's steps together with a data set that is never evicted.

    The data set does not change the number of batches. Rows come from both, in proportion to their sizes or
    priorities: a transition of the data set is as likely as one of the run, and has the same weight.

    Args:
        replay: the replay of the run's steps.
        data: the data set.
        share: a fixed share of each batch that comes from the data set, rounded to whole rows (symmetric sampling with
            0.5: Ball et al., 2023, arXiv:2302.02948, section 4.1). Importance weights are then those within each part.
    """

    def __init__(
        self,
        replay: ReplayBuffer,
        data: Fitted,
        share: float | None = None,
    ) -> None:
        self.replay = replay
        data_replay = copy.deepcopy(replay)
        data_replay.generator, self.generator = replay.generator.spawn(2)
        self.recorded = RecordedReplay(data_replay, data)
        shares = None if share is None else (1 - share, share)
        self.mixture = ReplayMixture([replay, data_replay], self.generator, shares)

    def add(self, step: Step, source: int = 0) -> None:
        self.replay.add(step, source)

    def batches(self, clock: Clock) -> Iterator[Transitions]:
        while self.replay.due_batches:
            self.replay.due_batches -= 1
            yield self.mixture.draw(self.replay.pace.batch_size, clock)

    def feedback(self, batch: Transitions, result: Result) -> None:
        self.mixture.feedback(result)

    def restart(self) -> None:
        """Mark the newest step of every row as truncated."""
        self.replay.restart()

    def state_dict(self) -> State:
        return {
            "own": self.replay.state_dict(),
            "recorded": self.recorded.state_dict(),
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> None:
        self.replay.load_state_dict(state["own"])
        self.recorded.load_state_dict(state["recorded"])
        self.generator.bit_generator.state = state["generator"]

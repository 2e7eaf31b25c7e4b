"""Sample batches from several replay buffers as if they were one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.clock import Clock
from rlplug_core.types import Array, Result

#: The most replay buffers for one batch: each costs 50 to 100 microseconds.
MOST = 8


class Joint:
    """Replays of one kind, and batches with rows of all of them.

    Each row is sampled at a point in an equal share of the total mass, so every replay contributes rows in
    proportion to its mass. With many replays, eight samples decide which of them contribute. Importance weights are
    computed
    over all of them, and so is the mass of new transitions: an unused transition is equally urgent in every replay.

    Args:
        replays: they keep their own steps, generators and priorities.
        generator: draws the points.
        shares: the share of each replay in every batch; default: in proportion to their masses.
    """

    def __init__(
        self,
        replays: Sequence[ReplayBuffer],
        generator: np.random.Generator,
        shares: Sequence[float] | None = None,
    ) -> None:
        self.replays = replays
        self.generator = generator
        self.shares = shares
        #: The part of the last batch from each replay, and whether replays need its priorities.
        self.given: list[tuple[ReplayBuffer, Transitions]] = []
        self.weighed = False

    def draw(self, size: int, clock: Clock) -> Transitions:
        """Draw a batch of `size` transitions, grouped by replay.

        Args:
            size: number of transitions.
            clock: for the discount and the exponent of importance weights.
        """
        drawn = list(self._choose(size))
        weights = self._weights(drawn, clock)
        self.given = []
        self.weighed = weights is not None
        begin = 0
        for replay, index, _ in drawn:
            part_weights = None if weights is None else weights[begin : begin + len(index)]
            replay.gamma = replay.discount(clock.progress)
            self.given.append((replay, replay.gather(index, part_weights)))
            begin += len(index)
        return drawn[0][0].join([part for _, part in self.given])

    def _weights(
        self,
        drawn: Sequence[tuple[ReplayBuffer, Array, Array]],
        clock: Clock,
    ) -> Array | None:
        """Return importance weights: over all replays together, or within each if their shares are fixed."""
        if self.shares is None:
            return drawn[0][0].weights(np.concatenate([mass for _, _, mass in drawn]), clock)
        each = [replay.weights(mass, clock) for replay, _, mass in drawn]
        parts = [part for part in each if part is not None]
        return np.concatenate(parts) if parts else None

    def _choose(
        self,
        size: int,
    ) -> Iterator[tuple[ReplayBuffer, Array, Array]]:
        """Return the replays that contribute, with the numbers of their steps and their masses."""
        ready = [each for each in self.replays if each.ready()]
        masses = np.array([each.mass for each in ready])
        if self.shares is not None:
            yield from self._choose_shares(size, ready)
            return
        for each, mass, count in zip(ready, masses, self._counts(size, masses), strict=True):
            if count:
                yield each, *each.choose(self._points(count, mass))

    def _choose_shares(
        self,
        size: int,
        ready: Sequence[ReplayBuffer],
    ) -> Iterator[tuple[ReplayBuffer, Array, Array]]:
        """Do the same with fixed shares; if only one replay is ready, it contributes all rows."""
        assert self.shares is not None
        shares = [
            share for each, share in zip(self.replays, self.shares, strict=True) if each in ready
        ]
        ends = np.rint(np.cumsum(shares) / sum(shares) * size).astype(int)
        for each, count in zip(ready, np.diff(ends, prepend=0), strict=True):
            if count:
                yield each, *each.choose(self._points(int(count), each.mass))

    def _counts(self, size: int, masses: Array) -> list[int]:
        """Return the number of rows that each replay contributes; the expectation is proportional to its mass."""
        draws = size if len(masses) <= MOST else min(size, MOST)
        rows = np.diff(np.arange(draws + 1) * size // draws)  # rows per sample
        owner = np.cumsum(masses).searchsorted(self._points(draws, masses.sum()), side="right")
        return np.bincount(owner.clip(max=len(masses) - 1), rows, len(masses)).astype(int).tolist()

    def _points(self, count: int, mass: float) -> Array:
        """Return a point in each of `count` equal shares of a mass."""
        return (np.arange(count) + self.generator.random(count)) * (mass / count)

    def feedback(self, result: Result) -> None:
        """Return priorities and extras of the last batch to the replays it came from, if they use them."""
        if not self.weighed and not result.extras:
            return
        rows = sum(len(part.index) for _, part in self.given)
        begin = 0
        for replay, part in self.given:
            rows_of_part = slice(begin, begin + len(part.index))
            priority = None if result.priority is None else result.priority[rows_of_part]
            extras = {}
            for name, value in (result.extras or {}).items():
                # The steps [T * B, ...] of a batch are ordered by time first.
                steps = value.reshape(-1, rows, *value.shape[1:])[:, rows_of_part]
                extras[name] = steps.reshape(-1, *value.shape[1:])
            replay.feedback(part, replace(result, priority=priority, extras=extras))
            begin = rows_of_part.stop
        largest = max(replay.largest for replay in self.replays)
        for replay in self.replays:
            replay.largest = largest

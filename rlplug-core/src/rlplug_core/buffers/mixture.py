"""`ReplayMixture`: batches with rows from several replay buffers, as if they were one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from rlplug_core.batches import Transitions
from rlplug_core.buffers.replay import ReplayBuffer
from rlplug_core.clock import Clock
from rlplug_core.types import Array, Result

#: The most replay buffers in one batch: each costs 50 to 100 microseconds.
MOST = 8


class ReplayMixture:
    """Samples batches from several replays of one kind.

    Each row is sampled at a point in an equal share of the total mass, so every replay contributes rows in
    proportion to its mass. If there are more than `MOST` replays, `MOST` points decide which of them contribute.
    Importance weights are computed over all replays. New transitions have the largest mass of all replays, so those of
    one replay are sampled as often as those of another.

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
        #: The replays that contributed to the last batch, each with its rows.
        self.last_parts: list[tuple[ReplayBuffer, Transitions]] = []
        #: Whether the last batch has importance weights, so that the replays need its priorities.
        self.has_weights = False

    def draw(self, size: int, clock: Clock) -> Transitions:
        """Draw a batch of `size` transitions, grouped by replay.

        Args:
            size: number of transitions.
            clock: for the discount and the exponent of importance weights.
        """
        drawn = list(self._choose(size))
        weights = self._weights(drawn, clock)
        self.last_parts = []
        self.has_weights = weights is not None
        start = 0
        for replay, index, _ in drawn:
            part_weights = None if weights is None else weights[start : start + len(index)]
            replay.gamma = replay.discount(clock.progress)
            self.last_parts.append((replay, replay.gather(index, part_weights)))
            start += len(index)
        return drawn[0][0].join([part for _, part in self.last_parts])

    def _weights(
        self,
        drawn: Sequence[tuple[ReplayBuffer, Array, Array]],
        clock: Clock,
    ) -> Array | None:
        """Return importance weights: over all replays together, or within each replay if shares are fixed."""
        if self.shares is None:
            return drawn[0][0].weights(np.concatenate([mass for _, _, mass in drawn]), clock)
        by_replay = [replay.weights(mass, clock) for replay, _, mass in drawn]
        weights = [array for array in by_replay if array is not None]
        return np.concatenate(weights) if weights else None

    def _choose(
        self,
        size: int,
    ) -> Iterator[tuple[ReplayBuffer, Array, Array]]:
        """Yield the replays that contribute, with the numbers of their steps and their masses."""
        ready = [replay for replay in self.replays if replay.ready()]
        masses = np.array([replay.mass for replay in ready])
        if self.shares is None:
            counts = self._counts_by_mass(size, masses)
        else:
            counts = self._counts_by_share(size, ready, self.shares)
        for replay, mass, count in zip(ready, masses, counts, strict=True):
            if count:
                yield replay, *replay.choose(self._points(count, mass))

    def _counts_by_share(
        self,
        size: int,
        ready: Sequence[ReplayBuffer],
        shares: Sequence[float],
    ) -> list[int]:
        """Return the number of rows of each replay for fixed shares; if only one replay is ready, it has all rows."""
        pairs = zip(self.replays, shares, strict=True)
        used = [share for replay, share in pairs if replay in ready]
        ends = np.rint(np.cumsum(used) / sum(used) * size).astype(int)
        return np.diff(ends, prepend=0).tolist()

    def _counts_by_mass(self, size: int, masses: Array) -> list[int]:
        """Return the number of rows of each replay; the expectation is proportional to its mass."""
        draws = size if len(masses) <= MOST else min(size, MOST)
        rows = np.diff(np.arange(draws + 1) * size // draws)  # rows per point
        owner = np.cumsum(masses).searchsorted(self._points(draws, masses.sum()), side="right")
        return np.bincount(owner.clip(max=len(masses) - 1), rows, len(masses)).astype(int).tolist()

    def _points(self, count: int, mass: float) -> Array:
        """Draw a point in each of `count` equal shares of a mass."""
        return (np.arange(count) + self.generator.random(count)) * (mass / count)

    def feedback(self, result: Result) -> None:
        """Pass the priorities and extras of the last batch to the replays of its rows, if they use them."""
        if not self.has_weights and not result.extras:
            return
        rows = sum(len(part.index) for _, part in self.last_parts)
        start = 0
        for replay, part in self.last_parts:
            rows_of_part = slice(start, start + len(part.index))
            priority = None if result.priority is None else result.priority[rows_of_part]
            extras = {}
            for name, value in (result.extras or {}).items():
                # The steps [T * B, ...] of a batch are ordered by time first.
                steps = value.reshape(-1, rows, *value.shape[1:])[:, rows_of_part]
                extras[name] = steps.reshape(-1, *value.shape[1:])
            replay.feedback(part, replace(result, priority=priority, extras=extras))
            start = rows_of_part.stop
        largest = max(replay.largest for replay in self.replays)
        for replay in self.replays:
            replay.largest = largest

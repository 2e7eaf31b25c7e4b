"""A sum tree: sums over blocks of an array of masses, so that sampling and updates are fast.

Each node has 32 children instead of 2: the cost of a level is a few numpy calls for any width, so fewer levels are
faster.
"""

from __future__ import annotations

import numpy as np

from rlplug_core.types import Array

#: Children of a node, and the most nodes of the top level, which is searched as a whole.
WIDTH = 32
TOP = 1024


class SumTree:
    """`size` masses of at least 0, and samples in proportion to them.

    If a child changes, its parent's sum is computed again from all children, never by adding a difference. So the
    tree depends only on the masses: rounding errors do not accumulate, and a tree of saved masses has the same bits.
    """

    def __init__(self, size: int) -> None:
        self.levels = [np.zeros(_whole_blocks(size))]
        while len(self.levels[-1]) > TOP:
            self.levels.append(np.zeros(_whole_blocks(len(self.levels[-1]) // WIDTH)))
        self.mass = self.levels[0][:size]
        self._blocks = [level.reshape(-1, WIDTH) for level in self.levels]
        #: Blocks of the lowest level with old sums.
        self._stale: set[int] = set()

    @property
    def total(self) -> float:
        """Return the sum of all masses."""
        self._refresh()
        return float(self.levels[-1].sum())

    def set(self, index: Array, mass: Array) -> None:
        """Set the masses at `index` [B]; if an index occurs twice, the last mass counts."""
        self.mass[index] = mass
        self._sum(index // WIDTH)

    def fill(self, start: int, stop: int, mass: float | Array) -> None:
        """Set the masses in [start, stop); the sums are computed when they are next needed."""
        self.mass[start:stop] = mass
        self._stale.update(range(start // WIDTH, (stop - 1) // WIDTH + 1))

    def load(self, mass: Array) -> None:
        """Set the first masses to `mass` and all others to 0."""
        self.mass[: len(mass)] = mass
        self.mass[len(mass) :] = 0
        self.fill(0, len(self.mass), self.mass)

    def find(self, point: Array) -> Array:
        """Return the first places [B] at which the running sum of masses is above `point` [B], each in [0, total).

        Their masses are never 0, even if sums are rounded.
        """
        self._refresh()
        running = np.concatenate([[0.0], np.cumsum(self.levels[-1])])
        point = np.minimum(point, np.nextafter(running[-1], 0))
        place: Array = running.searchsorted(point, side="right") - 1
        point = point - running[place]
        for blocks in reversed(self._blocks[:-1]):
            sums = np.zeros((len(point), WIDTH + 1))
            np.cumsum(blocks.take(place, axis=0), axis=1, out=sums[:, 1:])
            point = np.minimum(point, np.nextafter(sums[:, -1], 0))
            child = (sums[:, 1:] <= point[:, None]).sum(axis=1)
            point = point - sums[np.arange(len(point)), child]
            place = place * WIDTH + child
        return place

    def _refresh(self) -> None:
        if self._stale:
            self._sum(np.fromiter(self._stale, np.int64, len(self._stale)))
            self._stale.clear()

    def _sum(self, block: Array) -> None:
        """Compute the sums over blocks of the lowest level, and all sums above them."""
        for blocks, above in zip(self._blocks, self.levels[1:], strict=False):
            above[block] = blocks.take(block, axis=0).sum(axis=1)
            block = block // WIDTH


def _whole_blocks(size: int) -> int:
    """Return the smallest multiple of `WIDTH` that is at least `size`."""
    return -(-size // WIDTH) * WIDTH

"""Floor plans, parsed from text into tables of moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlplug_core.types import Array

#: Up, right, down, left, as changes of line and column.
DIRECTIONS = ((-1, 0), (0, 1), (1, 0), (0, -1))


@dataclass(frozen=True)
class Grid:
    """A floor plan over its numbered cells.

    Attributes:
        moves: [cells, 4] the next cell for each direction; at a wall it is the same cell.
        goal: the cell that ends an episode.
        limit: the number of steps after which an episode is truncated.
    """

    moves: Array
    goal: int
    limit: int

    @classmethod
    def parse(cls, plan: str, limit: int) -> Grid:
        """Parse a plan: `#` is wall, `G` is the goal, all else is floor. It needs walls on all four sides."""
        lines = plan.split()
        places = [
            (y, x)
            for y, line in enumerate(lines)
            for x, character in enumerate(line)
            if character != "#"
        ]
        number = {place: cell for cell, place in enumerate(places)}
        moves = [
            [number.get((y + down, x + right), cell) for down, right in DIRECTIONS]
            for cell, (y, x) in enumerate(places)
        ]
        (goal,) = (cell for cell, (y, x) in enumerate(places) if lines[y][x] == "G")
        return cls(np.array(moves), goal, limit)

    @property
    def starts(self) -> Array:
        """The start cells of episodes: all except the goal."""
        return np.delete(np.arange(len(self.moves)), self.goal)


GRIDS = {
    "Room-v0": Grid.parse(
        """
        #######
        #.....#
        #.....#
        #.....#
        #.....#
        #....G#
        #######
        """,
        limit=50,
    ),
    "FourRooms-v0": Grid.parse(
        """
        #############
        #.....#.....#
        #.....#.....#
        #...........#
        #.....#.....#
        #.....#.....#
        ##.####.....#
        #.....###.###
        #.....#.....#
        #.....#.....#
        #...........#
        #.....#....G#
        #############
        """,
        limit=200,
    ),
}

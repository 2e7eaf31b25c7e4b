"""Grid worlds: `gridworld/Room-v0` and `gridworld/FourRooms-v0` (Sutton, Precup and Singh, 1999)."""

from __future__ import annotations

from collections.abc import Iterable

from rlplug_core.errors import UnknownEnv, did_you_mean
from rlplug_gridworld.env import GridWorld
from rlplug_gridworld.grid import GRIDS


class GridWorlds:
    """Creates grid worlds by id."""

    def ids(self) -> Iterable[str]:
        return [f"gridworld/{name}" for name in GRIDS]

    def make(self, id: str, num_envs: int) -> GridWorld:
        """Create a grid world.

        Raises:
            UnknownEnv: the id is unknown; the message names similar ids.
        """
        grid = GRIDS.get(id.partition("/")[2])
        if grid is None:
            known = ", ".join(self.ids())
            raise UnknownEnv(
                f"no environment '{id}'{did_you_mean(id, self.ids())} (rlplug-gridworld has {known})"
            )
        return GridWorld(id, grid, num_envs)

"""The best returns of rlplug-gridworld are the lengths of its shortest paths; its state resumes exactly."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from rlplug_gridworld.env import GridWorld
from rlplug_gridworld.grid import GRIDS, Grid
from rlplug_gridworld.provider import GridWorlds

from rlplug_core.errors import UnknownEnv
from rlplug_core.plugins import make_env
from rlplug_core.protocols import Env, Provider
from rlplug_core.types import Array

NAMES = pytest.mark.parametrize("name", GRIDS)


def distances(grid: Grid) -> Array:
    """Return the length of the shortest path from every cell to the goal."""
    found = {grid.goal: 0}
    queue = deque([grid.goal])
    while queue:
        cell = queue.popleft()
        for before in np.flatnonzero((grid.moves == cell).any(1)):
            if int(before) not in found:
                found[int(before)] = found[cell] + 1
                queue.append(int(before))
    return np.array([found[cell] for cell in range(len(grid.moves))])


@NAMES
def test_shortest_path_has_the_best_return_and_terminates(name: str) -> None:
    grid = GRIDS[name]
    far = distances(grid)
    best = far[grid.moves].argmin(1)
    env = GridWorld(name, grid, 64)
    cells = env.reset(1).obs.argmax(1)
    start = cells
    seen: set[int] = set()
    while len(seen) < 64:
        now = env.step(best[cells])
        for episode in now.episodes:
            if episode.row not in seen:
                assert (episode.total, episode.length) == (
                    -far[start[episode.row]],
                    far[start[episode.row]],
                )
            seen.add(episode.row)
            assert now.terminated[episode.row]
            assert now.final_obs[episode.row].argmax() == grid.goal
            assert now.obs[episode.row].argmax() != grid.goal
        cells = now.obs.argmax(1)


def test_episode_without_the_goal_is_truncated() -> None:
    grid = GRIDS["Room-v0"]
    env = GridWorld("Room-v0", grid, 3)
    env.reset(1)
    for _ in range(grid.limit - 1):
        assert not env.step(np.zeros(3, np.int64)).ended  # up, into the wall
    last = env.step(np.zeros(3, np.int64))
    assert last.truncated.all()
    assert not last.terminated.any()
    assert [episode.total for episode in last.episodes] == [-grid.limit] * 3


@NAMES
def test_state_resumes_exactly(name: str) -> None:
    actions = np.random.default_rng(0).integers(0, 4, (300, 4))
    env, fresh = (GridWorld(name, GRIDS[name], 4) for _ in range(2))
    env.reset(1)
    for action in actions[:100]:
        env.step(action)
    fresh.load_state_dict(env.state_dict())
    for action in actions[100:]:
        now = env.step(action)
        then = fresh.step(action)
        for field in ("obs", "final_obs", "reward", "terminated", "truncated", "is_first"):
            np.testing.assert_array_equal(getattr(now, field), getattr(then, field))
        assert now.episodes == then.episodes


def test_row_does_not_depend_on_the_number_of_rows() -> None:
    few, many = (GridWorld("Room-v0", GRIDS["Room-v0"], rows) for rows in (2, 5))
    np.testing.assert_array_equal(few.reset(7).obs, many.reset(7).obs[:2])


def test_provider_is_found_by_its_namespace() -> None:
    assert isinstance(GridWorlds(), Provider)
    for id in GridWorlds().ids():
        env = make_env(id, 2)
        assert isinstance(env, Env)
        assert env.reset(0).obs.shape == (2, *env.spec.obs.shape)  # type: ignore[misc]
    with pytest.raises(UnknownEnv, match=r"did you mean 'gridworld/Room-v0'"):
        make_env("gridworld/Rom-v0", 1)

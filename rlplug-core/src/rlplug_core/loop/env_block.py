"""`Block`: memory that a parent and its environment workers share, as arrays of all environments."""

from __future__ import annotations

import mmap
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.errors import RlplugError
from rlplug_core.loop.chunks import Places
from rlplug_core.loop.shared_memory import reserve_file
from rlplug_core.nets.actions import dtype_of, shape_of
from rlplug_core.types import Space, Spec, tree_map

#: A directory in memory, if this system has one.
MEMORY = Path("/dev/shm")


class Block:
    """Two alternating sets of observations and rewards, true successors, and actions; each [N, ...] for N environments.

    Args:
        spec: of all rows.
        path: the file, or on Windows the name, of memory that another process made; "" for new memory.

    Attributes:
        obs, reward: two of each, written in turn.
        final: the successors of the last actions, if an episode ended.
        action: the rows' next actions.
    """

    def __init__(self, spec: Spec, path: str = "") -> None:
        places = Places()
        obs = [_observations(spec.obs, spec.num_envs, places) for _ in range(3)]
        reward = [places((spec.num_envs,), np.float32) for _ in range(2)]
        action = places((spec.num_envs, *shape_of(spec.action)), dtype_of(spec.action))
        self.path = path or _make_memory(places.size)
        memory = np.frombuffer(_open_memory(self.path, places.size), np.uint8)
        *self.obs, self.final = [tree_map(lambda place: place.view(memory), tree) for tree in obs]
        self.reward = [place.view(memory) for place in reward]
        self.action = action.view(memory)

    def unlink(self) -> None:
        """Remove the name of the file once every process has opened it, so that the memory is freed when they end."""
        if os.name != "nt":
            Path(self.path).unlink(missing_ok=True)


def _open_memory(path: str, size: int) -> mmap.mmap:
    # Windows: memory with a name, because an open file cannot be deleted.
    if os.name == "nt":
        return mmap.mmap(-1, size, tagname=path)  # type: ignore[call-arg]
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _make_memory(size: int) -> str:
    if os.name == "nt":
        return f"rlplug-{secrets.token_hex(8)}"
    handle, path = tempfile.mkstemp(prefix="rlplug-", dir=MEMORY if MEMORY.is_dir() else None)
    try:
        reserve_file(handle, size)
    except RlplugError:
        Path(path).unlink()
        raise
    finally:
        os.close(handle)
    return path


def _observations(space: Space, num_envs: int, places: Places) -> Any:
    """Return the places of the observations of all environments."""
    if isinstance(space, spaces.Dict):
        return {name: _observations(part, num_envs, places) for name, part in space.spaces.items()}
    return places((num_envs, *(space.shape or ())), space.dtype)

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
from rlplug_core.loop.shared_memory import reserve_file
from rlplug_core.nets.actions import dtype_of, shape_of
from rlplug_core.types import Array, Obs, Space, Spec

#: A directory in memory, if this system has one.
MEMORY = Path("/dev/shm")
#: Arrays start at multiples of this.
LINE = 64


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
        reward = spaces.Box(-1, 1, (), np.float32)
        action = spaces.Box(-1, 1, shape_of(spec.action), np.dtype(dtype_of(spec.action)).type)
        parts = [spec.obs, spec.obs, reward, reward, spec.obs, action]
        size = sum(_size(space, spec) for space in parts)
        self.path = path or _new(size)
        self._memory = _map(self.path, size)
        self._used = 0
        self.obs = [self._arrays(spec.obs, spec.num_envs) for _ in range(2)]
        self.reward = [self._array((spec.num_envs,), np.dtype(np.float32)) for _ in range(2)]
        self.final = self._arrays(spec.obs, spec.num_envs)
        self.action = self._array(
            (spec.num_envs, *shape_of(spec.action)), np.dtype(dtype_of(spec.action))
        )

    def unlink(self) -> None:
        """Remove the name of the file when every process has opened it, so that it ends with them."""
        if os.name != "nt":
            Path(self.path).unlink(missing_ok=True)

    def _arrays(self, space: Space, num_envs: int) -> Obs:
        if isinstance(space, spaces.Dict):
            return {name: self._arrays(part, num_envs) for name, part in space.spaces.items()}
        return self._array((num_envs, *(space.shape or ())), np.dtype(space.dtype))

    def _array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        count = int(np.prod(shape))
        found = np.frombuffer(self._memory, dtype, count, self._used).reshape(shape)
        self._used += _round_up(count * dtype.itemsize)
        return found


def _map(path: str, size: int) -> mmap.mmap:
    # Windows: memory with a name, because an open file cannot be deleted.
    if os.name == "nt":
        return mmap.mmap(-1, size, tagname=path)  # type: ignore[call-arg]
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _new(size: int) -> str:
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


def _size(space: Space, spec: Spec) -> int:
    if isinstance(space, spaces.Dict):
        return sum(_size(part, spec) for part in space.spaces.values())
    return _round_up(
        spec.num_envs * int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize
    )


def _round_up(size: int) -> int:
    return -(-size // LINE) * LINE

"""Tested memories and networks, built with a seed and given made-up features and observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.errors import RlplugError
from rlplug_core.nets.custom import custom, reads_actions
from rlplug_core.nets.net import Net
from rlplug_core.nets.recurrent import Memory, Remembered, make_memory
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.types import Obs, Space

M = TypeVar("M")
#: The number of features that a tested memory reads.
FEATURES = 6
#: The spaces that a network is tried with; one that is for images refuses the others.
SPACES: dict[str, Space] = {
    "a vector": spaces.Box(-2, 2, (7,), np.float32),
    "an image": spaces.Box(0, 255, (40, 40, 3), np.uint8),
    "a Dict": spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (40, 40, 1), np.uint8),
            "joints": spaces.Box(-1, 1, (3,), np.float32),
        }
    ),
    "a number": spaces.Discrete(5),
}


def with_seed(make: Callable[[], M], seed: int) -> M:
    """Return the result of `make` after seeding torch's generator; then restore the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class MemorySubject:
    """A memory, `NAME` or `NAME:option=value`, or `./file.py:Class`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def build(self, seed: int = 1) -> Memory:
        """Return a new memory with initial weights of a seed.

        Raises:
            UsageError, PluginError: it does not exist, or it cannot be made.
        """
        return with_seed(lambda: make_memory(self.name, FEATURES), seed)

    def features(self, rows: int, seed: int = 5) -> Tensor:
        """Return features [rows, F]."""
        return torch.randn(rows, FEATURES, generator=torch.Generator().manual_seed(seed))

    def states(self, memory: Memory, rows: int, seed: int = 7) -> Remembered:
        """Return the state [rows, ...] after some steps."""
        state = {name: torch.from_numpy(part) for name, part in memory.initial(rows).items()}
        with torch.no_grad():
            for step in range(4):
                state = memory.step(self.features(rows, seed + step), state)
        return state


class NetworkSubject:
    """A network by name, `impala-cnn` or `./file.py:make`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def build(self, space: Space, seed: int = 1) -> tuple[nn.Module, int]:
        """Return a new module for a space with initial weights of a seed, and its number of features.

        Raises:
            UsageError, PluginError: it is not for this space, or it cannot be made.
        """
        net = Net(factory=self.name)
        return with_seed(lambda: custom(space, net), seed)

    def spaces(self) -> dict[str, Space]:
        """Return the spaces that the network takes.

        Raises:
            Failed: it takes no space.
        """
        accepted: dict[str, Space] = {}
        reasons = []
        for name, space in (SPACES | self._joint_space()).items():
            try:
                self.build(space)
            except RlplugError as error:
                reasons.append(f"{name}: {error}")
            else:
                accepted[name] = space
        if not accepted:
            raise Failed(
                f"it takes none of the kit's observations; the first refusal: {reasons[0]}"
            )
        return accepted

    def _joint_space(self) -> dict[str, Space]:
        """Return the space of an observation and an action, if the network takes actions."""
        if not reads_actions(self.name):
            return {}
        action = spaces.Box(-1, 1, (2,), np.float32)
        return {
            "an observation and an action": spaces.Dict(
                {"obs": SPACES["a vector"], "action": action}
            )
        }

    def observations(self, space: Space, rows: int, seed: int = 3) -> Obs:
        """Return observations of a space as tensors [rows, ...]."""
        if isinstance(space, spaces.Dict):
            return {
                name: self.observations(part, rows, seed + position)
                for position, (name, part) in enumerate(space.spaces.items())
            }
        generator = np.random.default_rng(seed)
        if isinstance(space, spaces.Discrete):
            return torch.from_numpy(generator.integers(space.n, size=rows) + space.start)
        assert isinstance(space, spaces.Box)
        values = generator.uniform(space.low, space.high, (rows, *space.shape))
        return torch.from_numpy(values.astype(space.dtype))

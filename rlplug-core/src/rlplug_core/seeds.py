"""The seed tree: every component of a run draws from its own generator, derived from one seed by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from zlib import crc32

import numpy as np
import torch

from rlplug_core.types import Array, State


class Seeds:
    """A node of the seed tree. Children have names, so adding one does not change others. Seed 0 is a valid seed."""

    def __init__(self, seed: int, path: tuple[int, ...] = ()) -> None:
        self.seed = seed
        self.path = path

    def child(self, name: str, number: int = 0) -> Seeds:
        return Seeds(self.seed, (*self.path, crc32(name.encode()), number))

    def generator(self) -> np.random.Generator:
        """Return a fresh generator; two calls give two generators that draw the same numbers."""
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=self.path))
        )

    def integer(self) -> int:
        """Return a seed for foreign code, in [0, 2**31)."""
        return int(np.random.SeedSequence(self.seed, spawn_key=self.path).generate_state(1)[0]) >> 1


class Draws:
    """Random numbers drawn in blocks, because separate draws cost twenty times as much.

    `draw(generator, size)` fills one block of `size` draws. The state is the generator before the block and the
    position in it, so a resumed run continues with the same numbers.
    """

    def __init__(
        self,
        generator: np.random.Generator,
        draw: Callable[[np.random.Generator, int], Array],
        size: int = 256,
    ) -> None:
        self.generator = generator
        self.draw = draw
        self.size = size
        self._refill()

    def _refill(self) -> None:
        self.before = self.generator.bit_generator.state
        self.block = self.draw(self.generator, self.size)
        self.position = 0

    def next(self, rows: int = 0) -> Array:
        """Return the next draw, a view of the block; more or fewer `rows` use as many draws as needed."""
        if self.position == self.size:
            self._refill()
        position = self.position
        self.position = position + 1
        value: Array = self.block[position]
        if not rows or len(value) == rows:
            return value
        return np.concatenate([value, *(self.next() for _ in range(-(-rows // len(value)) - 1))])[
            :rows
        ]

    def state_dict(self) -> State:
        return {"before": self.before, "position": self.position}

    def load_state_dict(self, state: State) -> None:
        self.generator.bit_generator.state = state["before"]
        self._refill()
        self.position = state["position"]


def global_state() -> State:
    """Return the process's own generators (torch, numpy, Python), which foreign code may draw from."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, extra = random.getstate()
    state: State = {
        "torch": torch.get_rng_state(),
        "numpy": {
            "name": str(name),
            "keys": keys,
            "position": position,
            "has_gauss": has_gauss,
            "gauss": gauss,
        },
        "python": {
            "version": version,
            "internal": np.array(internal, dtype=np.uint64),
            "gauss": extra,
        },
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def load_global_state(state: State) -> None:
    """Restore the process's generators to the result of `global_state`."""
    torch.set_rng_state(state["torch"])
    legacy = state["numpy"]
    np.random.set_state(
        (legacy["name"], legacy["keys"], legacy["position"], legacy["has_gauss"], legacy["gauss"])
    )
    internal = tuple(int(word) for word in state["python"]["internal"])
    random.setstate((state["python"]["version"], internal, state["python"]["gauss"]))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Restore the process's random generators after the block."""
    state = global_state()
    try:
        yield
    finally:
        load_global_state(state)


def seed_globals(seeds: Seeds) -> None:
    """Seed the process's generators, for foreign code that draws from them."""
    seed = seeds.integer()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

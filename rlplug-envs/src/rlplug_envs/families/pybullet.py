"""Keeps PyBullet's environments from writing to the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rlplug_core.types import GymWrapper

#: The module that defines the environments.
MODULE = "pybullet_envs_gymnasium"
#: Why they cannot resume: their attributes are only handles of simulations.
INEXACT = "PyBullet does not expose the state of its simulation"


class Quiet(GymWrapper):
    """Resets without `argv[0]=` on standard output, which PyBullet writes for each simulation that it starts."""

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[object, dict[str, object]]:
        with silence_stdout():
            return self.env.reset(seed=seed, options=options)


@contextmanager
def silence_stdout() -> Iterator[None]:
    """Discard everything that is written to standard output, from C too."""
    sys.stdout.flush()
    saved = os.dup(1)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(devnull)

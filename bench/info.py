"""What do numbers in `info` cost a step? The same environment, silent and saying four numbers: `python bench/info.py`.

The two take turns, and the processor time of the fastest turn of each counts.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlplug_envs.vector import SerialEnvs

ROWS = 8
STEPS = 1_000


class Silent(gymnasium.Env[Any, Any]):
    """Does nothing for as many steps as an episode has."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)
    seen = np.zeros(4, np.float32)
    said: dict[str, Any] = {}

    def __init__(self, length: int) -> None:
        self.length = length
        self.age = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.age = 0
        return self.seen, self.said

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.age += 1
        return self.seen, 1.0, self.age == self.length, False, self.said


class Telling(Silent):
    """Says four numbers in every step."""

    said = {"score": 12, "distance": 0.5, "lives": 3, "is_success": True}


def turn(env: Any, action: Any) -> float:
    """Microseconds of one vector step."""
    began = time.process_time()
    for _ in range(STEPS):
        env.step(action)
    return (time.process_time() - began) / STEPS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=100)
    turns = parser.parse_args().turns
    action = np.zeros(ROWS, np.int64)
    print(f"µs per vector step of {ROWS} rows\n")
    print("| steps of an episode | silent | telling | ratio |\n| --- | --- | --- | --- |")
    for length in (10, 200, 1000):
        envs = [
            SerialEnvs(partial(kind, length), ROWS, id="Any-v0", inexact="")
            for kind in (Silent, Telling)
        ]
        for env in envs:
            env.reset(1)
        times = np.array([[turn(env, action) for env in envs] for _ in range(turns)])
        silent, telling = times.min(0)
        print(f"| {length} | {silent:.1f} | {telling:.1f} | {telling / silent:.3f} |", flush=True)


if __name__ == "__main__":
    main()

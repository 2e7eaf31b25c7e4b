"""What replay costs: adding a step, drawing a batch and reporting priorities, from a full memory.

python bench/buffers.py [--capacity 1000000] [--repeats 300] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from results import machine, revision, table, write_section

from rlplug_core.buffers.prioritized import PrioritizedReplay
from rlplug_core.buffers.replay import Pace, ReplayBuffer
from rlplug_core.clock import Clock
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array, Result, Step

ROWS = 8
SIZE = 256
CLOCK = Clock(1)
PACE = Pace(SIZE, 10**9, 1, 10**4)


def vectors(count: int) -> Iterator[Step]:
    """Steps of (4,) whose episodes take 200 steps on average."""
    rng = np.random.default_rng(0)
    never = np.zeros(ROWS, bool)
    seen = [rng.random((ROWS, 4), dtype=np.float32) for _ in range(2)]
    for t in range(count):
        cut = rng.random(ROWS) < 1 / 200
        yield step(seen[t % 2], seen[(t + 1) % 2], never, cut)


def images(count: int) -> Iterator[Step]:
    """Stacks of four frames of 84 x 84 in one row, in one episode."""
    rng = np.random.default_rng(0)
    never = np.zeros(1, bool)
    seen = [np.zeros((1, 4, 84, 84), np.uint8) for _ in range(3)]
    for t in range(count):
        now = seen[t % 3]
        after = seen[(t + 1) % 3]
        after[:, :-1], after[:, -1] = now[:, 1:], rng.integers(0, 256, (84, 84), np.uint8)
        yield step(now, after, never, never)


def step(obs: Array, after: Array, terminated: Array, truncated: Array) -> Step:
    rows = len(obs)
    zeros = np.zeros(rows, np.int64)
    ones = np.ones(rows, np.float32)
    valid = np.ones(rows, bool)
    return Step(
        obs=obs,
        action=zeros,
        reward=ones,
        next_obs=after,
        terminated=terminated,
        truncated=truncated,
        is_first=~valid,
        valid=valid,
        ended=bool(truncated.any()),
        extras={},
        recurrent_state=None,
    )


def median(action: Callable[[], object], repeats: int) -> float:
    """Microseconds."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1e6


def filled(buffer: ReplayBuffer, steps: Iterator[Step]) -> float:
    """Add all steps; microseconds for one of them, the median."""
    seconds = []
    for each in steps:
        began = time.perf_counter()
        buffer.add(each)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for n, bar in ((1, "≤ 60 µs"), (3, "")):
        buffer = ReplayBuffer(asked.capacity, PACE, n, 0.99, Seeds(0))
        add = filled(buffer, vectors(asked.capacity // ROWS + 1))
        draw = median(lambda made=buffer: made.draw(SIZE, CLOCK), asked.repeats)
        rows += [(f"uniform, {n}-step: add {ROWS} rows of (4,)", f"{add:.1f}", "")]
        rows += [(f"uniform, {n}-step: draw {SIZE}", f"{draw:.1f}", bar)]
    chosen = PrioritizedReplay(asked.capacity, PACE, 3, 0.99, Seeds(0))
    add = filled(chosen, vectors(asked.capacity // ROWS + 1))
    error = torch.rand(SIZE)
    both = median(
        lambda: chosen.feedback(chosen.draw(SIZE, CLOCK), Result({}, error)), asked.repeats
    )
    rows += [(f"prioritized, 3-step: add {ROWS} rows of (4,)", f"{add:.1f}", "")]
    rows += [
        (f"prioritized, 3-step: draw {SIZE} and take their priorities", f"{both:.1f}", "≤ 1,000 µs")
    ]
    film = ReplayBuffer(20_000, PACE, 1, 0.99, Seeds(0))
    rows += [
        (
            "stacks of four frames, 84 x 84: add one row",
            f"{filled(film, images(20_500)):.1f}",
            "≤ 30 µs",
        )
    ]
    found = table(["what", "µs, median", "bar"], rows)
    print(found)
    if asked.write:
        head = f"## Replay\n\n`python bench/buffers.py` (memories of {asked.capacity:,} steps, frames of 20,000)"
        write_section("buffers", f"{head}\n\n{found}\n\n{machine()}; rlplug at {revision()}.")


if __name__ == "__main__":
    main()

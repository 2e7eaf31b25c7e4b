"""Measure the time of an update on a GPU: eager, compiled, as CUDA graphs, and as compiled CUDA graphs.

    python bench/cudagraphs.py              # needs a GPU; compiling takes a few minutes
    python bench/cudagraphs.py --only sac

Batches are on the device, like with `--buffer-storage cuda`; PPO's update is one minibatch. A turn waits for the device
only at its end, like a run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from floor import make_learner, numbers, transitions
from results import machine, revision, table, write_section

import rlplug_core as rl

WAYS: dict[str, dict[str, bool]] = {
    "eager": {},
    "compiled": {"compile": True},
    "graphs": {"cudagraphs": True},
    "graphs, compiled": {"compile": True, "cudagraphs": True},
}
#: Updates per turn and number of turns; the first turns compile and record.
UPDATES = 100
TURNS = 21
FIRST = 3
BOX = spaces.Box(-1, 1, (6,), np.float32)


def ppo(options: dict[str, Any]) -> Callable[[], object]:
    """256 samples, two networks with two layers of 64 tanh, two actions."""
    learner = make_learner(
        "ppo", 4, spaces.Discrete(2), {"net.hidden": [64, 64], "net.activation": "tanh", **options}
    )
    arrays: Any = (
        np.ones(256, np.float32),
        numbers(256, 4),
        np.arange(256) % 2,
        numbers(256),
        numbers(256) * 2,
    )
    weight, *rest = map(torch.from_numpy, arrays)
    extras = {"log_prob": torch.from_numpy(numbers(256) * 0.1 - 0.7)}
    batch = rl.Samples(weight, None, *rest, extras).to(learner.device)
    clock = rl.Clock(10**9)
    return lambda: learner.actor_critic_optimizer.minimize(
        learner.loss(batch, learner.config)[0], clock
    )


def replay(name: str, options: dict[str, Any]) -> Callable[[], object]:
    """Two layers of 256 ReLU: 64 samples and two actions for DQN, 256 samples and HalfCheetah's spaces for others."""
    options = {"net.hidden": [256, 256], "net.activation": "relu", "n_step": 1, **options}
    if name == "dqn":
        learner = make_learner(name, 4, spaces.Discrete(2), options)
        batch = transitions(64, 4, np.arange(64) % 2)
    else:
        learner = make_learner(name, 17, BOX, options)
        batch = transitions(256, 17, np.tanh(numbers(256, 6)))
    batch = batch.to(learner.device)
    clock = rl.Clock(10**9)

    def update() -> None:
        learner.update(batch, clock)
        clock.updates += 1

    return update


def microseconds(update: Callable[[], object]) -> float:
    """Return the microseconds of one update, over a turn."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(UPDATES):
        update()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start) / UPDATES


def row(name: str) -> list[str]:
    """Return the medians of alternating turns."""
    settings = {way: {"device": "cuda", **options} for way, options in WAYS.items()}
    updates = {
        way: ppo(options) if name == "ppo" else replay(name, options)
        for way, options in settings.items()
    }
    turns = [[microseconds(update) for update in updates.values()] for _ in range(FIRST + TURNS)][
        FIRST:
    ]
    medians = [statistics.median(way) for way in zip(*turns, strict=True)]
    ratio = statistics.median(turn[0] / turn[2] for turn in turns)
    return [name, *(f"{median:,.0f}" for median in medians), f"{ratio:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["ppo", "dqn", "sac", "td3"])
    parser.add_argument(
        "--write", action="store_true", help="also write the table into bench/RESULTS.md"
    )
    arguments = parser.parse_args()
    if arguments.only and arguments.write:
        parser.error("--write needs all rows; leave out --only")
    if not torch.cuda.is_available():
        parser.exit(
            2,
            "torch finds no GPU, and CUDA graphs need one\n",
        )
    torch.set_num_threads(1)
    rows = [row(name) for name in ("ppo", "dqn", "sac", "td3") if arguments.only in (None, name)]
    header = [
        "update",
        "eager, µs",
        "compiled, µs",
        "graphs, µs",
        "graphs, compiled, µs",
        "eager / graphs",
    ]
    about = f"{torch.cuda.get_device_name()}; {machine()}; torch {torch.__version__}; rlplug at {revision()}."
    text = f"""## Updates on a GPU

`python bench/cudagraphs.py`

{table(header, rows)}

Medians of {TURNS} turns of {UPDATES} updates. {about}"""
    print(text)
    if arguments.write:
        write_section("cudagraphs", text)


if __name__ == "__main__":
    main()

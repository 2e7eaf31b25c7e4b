"""What users wait for: the first env step, a sweep beside its runs alone, and what logging takes from A3C.

    python bench/product.py --write
    python bench/product.py first --turns 3

Sides take turns, so that a slow minute of the machine hits both; ratios are taken within a turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from results import machine, revision, table, write_section

HERE = Path(__file__).parent
NEVER = str(10**12)
#: Nothing but training.
BARE = (
    "--eval-every",
    NEVER,
    "--checkpoint-every",
    NEVER,
    "--eval-episodes",
    "1",
    "--final-eval-episodes",
    "0",
    "--quiet",
)
QUIET = {"RLPLUG_DISABLED_PLUGINS": "mlflow"}
A3C = ("run", "a3c", "CartPole-v1", "--workers", "2", *BARE)
#: What one run of a sweep does; at this many env steps it takes about twenty seconds.
ONE = (
    "run",
    "ppo",
    "CartPole-v1",
    "--quiet",
    "--eval-episodes",
    "10",
    "--final-eval-episodes",
    "20",
)
RUNS = 8
CORES = 2


def started(
    words: Sequence[str], variables: Mapping[str, str], place: Path
) -> subprocess.Popen[bytes]:
    """Python with `words` in a directory; what it prints is dropped."""
    silent = subprocess.DEVNULL
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.Popen(
        [sys.executable, *words], cwd=place, env=environment, stdout=silent, stderr=silent
    )


def seconds(*commands: Sequence[str], variables: Mapping[str, str] = QUIET) -> float:
    """How long commands take that run at once, in a directory of their own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        began = time.perf_counter()
        processes = [started(words, variables, Path(place)) for words in commands]
        for process in processes:
            if process.wait():
                raise RuntimeError(f"{process.args} ended with code {process.returncode}")
        return time.perf_counter() - began


def rlplug(*words: str) -> list[str]:
    """The words behind Python for a command."""
    return ["-m", "rlplug_cli", *words]


def first(steps: int) -> tuple[float, float]:
    """Until the first env step of `rlplug run`, MLflow included; until torch and Gymnasium are imported."""
    store = {"MLFLOW_TRACKING_URI": ""}
    run = seconds(rlplug("run", "a2c", f"{HERE}/first_step.py:Ends", "--quiet"), variables=store)
    return run, seconds(["-c", "import torch, gymnasium"])


def sweep(steps: int) -> tuple[float, float]:
    """Eight runs, two at a time, as a sweep; four times as long as two of them alone on the two cores."""
    total = ("--total-timesteps", str(steps))
    whole = seconds(rlplug(*ONE, *total, "--seeds", str(RUNS), "--jobs", str(CORES)))
    alone = [
        rlplug(*ONE, *total, "--seed", str(seed), "--name", str(seed))
        for seed in range(1, CORES + 1)
    ]
    return whole, RUNS / CORES * seconds(*alone)


def logging(steps: int) -> tuple[float, float]:
    """A3C with all that is logged, MLflow's sender beside it; the same without a record and without MLflow."""
    total = ("--total-timesteps", str(steps))
    logged = seconds(rlplug(*A3C, *total), variables={"MLFLOW_TRACKING_URI": ""})
    return logged, seconds(rlplug(*A3C, *total, "--log-every", NEVER))


def training(steps: int) -> tuple[float, float]:
    """The same two, from the record that a run begins to the one that it ends: without imports, and without the wait
    for MLflow's sender at the end."""
    total = ("--total-timesteps", str(steps))
    logged = recorded(rlplug(*A3C, *total), {"MLFLOW_TRACKING_URI": ""})
    return logged, recorded(rlplug(*A3C, *total, "--log-every", NEVER), QUIET)


def recorded(words: Sequence[str], variables: Mapping[str, str]) -> float:
    """How long a run takes by its journal."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        if started(words, variables, Path(place)).wait():
            raise RuntimeError(f"{words} failed")
        (journal,) = Path(place).glob("runs/*/journal.jsonl")
        times = [
            json.loads(line)["time"] for line in journal.read_text(encoding="utf-8").splitlines()
        ]
    return float(times[-1] - times[0]) / 1000


#: What is measured, the env steps of a run, and the bar: time may be so many times that of the other side.
MEASURES: dict[str, tuple[Callable[[int], tuple[float, float]], int, float, str]] = {
    "first": (first, 1, 1.5, "first env step, to `import torch, gymnasium`"),
    "sweep": (sweep, 150_000, 1 / 0.95, "sweep of 8 runs on 2 cores, to the ideal"),
    "logging": (logging, 1_000_000, 1.01, "A3C with logging, to A3C without"),
    "training": (
        training,
        1_000_000,
        1.01,
        "the same, between the first and the last record of a run",
    ),
}


def row(name: str, turns: int, steps: int) -> tuple[str, ...]:
    """A line of the table: both medians, the median ratio and the quarters around it."""
    measure, usual, bar, title = MEASURES[name]
    times = [measure(steps or usual) for _ in range(turns + 1)][1:]  # the first writes byte code
    ratios = sorted(ours / theirs for ours, theirs in times)
    middle = statistics.median(ratios)
    spread = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
    ours, theirs = (statistics.median(one[side] for one in times) for side in (0, 1))
    return (
        title,
        f"{ours:.2f}",
        f"{theirs:.2f}",
        f"{middle:.3f}",
        spread,
        f"≤ {bar:.3g} {'✓' if middle <= bar else '✗'}",
    )


def main() -> None:
    """Measure, print, and write the section of RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", default=list(MEASURES), help=", ".join(MEASURES))
    parser.add_argument("--turns", type=int, default=5, help="how often both sides are measured")
    parser.add_argument(
        "--steps", type=int, default=0, help="env steps of a run  [each measure's own]"
    )
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    arguments = parser.parse_args()
    lines = [row(name, arguments.turns, arguments.steps) for name in arguments.what]
    header = ("what", "seconds", "beside", "ratio", "middle half", "bar")
    text = f"""## What users wait for

`python bench/product.py {" ".join(arguments.what)} --turns {arguments.turns}`

{table(header, lines)}

{machine()}; rlplug at {revision()}."""
    print(text)
    if arguments.write:
        write_section("product", text)


if __name__ == "__main__":
    main()

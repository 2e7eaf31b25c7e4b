"""Measure the time of `rlplug compare` on 100 runs of 2,500 points, and the coverage of its confidence intervals.

python bench/compare.py --write
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
from results import machine, revision, table, write_section

from rlplug_cli.compare.statistics import Aggregate, draws, estimate

RUNS = 100
POINTS = 2500
BAR = 3.0
#: Numbers of seeds and environments of a simulated comparison; number of simulations.
SIZES = ((3, 1), (5, 1), (10, 1), (20, 1), (50, 1), (5, 10), (10, 10))
SIMULATIONS = 600
REDRAWS = 1000
#: Standardized scores of a run.
SCORES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda generator, size: generator.normal(size=size),
    "skewed (exponential)": lambda generator, size: generator.exponential(size=size),
}


def write_runs(out: Path) -> None:
    """Write directories of runs of two configurations with an evaluation and a log record at each point."""
    generator = np.random.default_rng(0)
    for number in range(RUNS):
        run = out / f"run-{number}"
        run.mkdir()
        (run / "config.json").write_text(json.dumps(run_config(run.name, number)))
        returns = 500 * (1 - np.exp(-np.arange(POINTS) / 400)) + generator.normal(0, 30, POINTS)
        write_journal(run / "journal.jsonl", returns.tolist())


def run_config(name: str, number: int) -> dict[str, object]:
    """Return the `config.json` of a run; even and odd numbers differ in the learning rate."""
    options = {
        "seed": number // 2,
        "learning_rate": 1e-3 * (1 + number % 2),
        "total_timesteps": 1000 * POINTS,
    }
    return {
        "name": name,
        "uid": name,
        "group": str(number % 2),
        "algorithm": "ppo",
        "env": "CartPole-v1",
        "options": options,
        "origins": {"learning_rate": "option"},
        "created": number,
    }


def write_journal(path: Path, returns: list[float]) -> None:
    """Write two records for each mean return, 1,000 env steps apart, and the record of the end."""
    with open(path, "w", encoding="utf-8") as file:
        numbers = count(1)

        def write(kind: str, step: int, data: dict[str, object]) -> None:
            record = {"seq": next(numbers), "time": step, "kind": kind, "step": step, "data": data}
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

        for point, value in enumerate(returns):
            step = 1000 * (point + 1)
            write("metrics", step, metrics_at(point, value))
            write("evaluation", step, evaluation_of(value))
        write("end", 1000 * len(returns), {"status": "finished"})


def metrics_at(point: int, value: float) -> dict[str, object]:
    """Return the data of a log record."""
    losses = {f"loss/{name}": value / 7 for name in ("policy", "value", "entropy")}
    return {
        **losses,
        "rollout/return_mean": value,
        "perf/wall_s": point / 3,
        "perf/updates": point,
    }


def evaluation_of(value: float) -> dict[str, object]:
    """Return the data of an evaluation with the mean return `value`."""
    names = ("return_mean", "return_std", "return_min", "return_max", "length_mean")
    return {**{f"eval/{name}": value for name in names}, "best": False}


def seconds(arguments: list[str], turns: int) -> tuple[float, float]:
    """Return the medians of wall time and processor time of a command, with the start of the interpreter."""
    walls = []
    used = []
    for _ in range(turns):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "rlplug_cli", *arguments], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - started)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls), statistics.median(used)


def speed(turns: int) -> list[tuple[str, ...]]:
    """Return the rows of the table of commands: the command, its times in seconds, and whether it meets the bar."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        write_runs(Path(temporary))
        for label, arguments in (
            ("`rlplug compare SWEEP`", []),
            ("`… --center mean`", ["--center", "mean"]),
            ("`… --target 400`, with seconds to the target", ["--target", "400"]),
            (
                "`… --image curves.png --html page.html`",
                [f"--image={temporary}/c.png", f"--html={temporary}/p.html"],
            ),
        ):
            wall, used = seconds(["compare", temporary, *arguments], turns)
            bar = f"≤ {BAR:g} {'✓' if wall <= BAR else '✗'}" if not arguments else ""
            rows.append((label, f"{wall:.2f}", f"{used:.2f}", bar))
    return rows


def coverage(scores: str, how: Aggregate, seeds: int, envs: int) -> float:
    """Return how often the 95 % interval contains the aggregate of infinitely many seeds."""
    generator = np.random.default_rng(1)
    truth = _truth(scores, how)
    hits = 0
    for _ in range(SIMULATIONS):
        tasks = [SCORES[scores](generator, seeds) for _ in range(envs)]
        interval = estimate(tasks, how, draws([seeds] * envs, REDRAWS, generator))
        hits += interval.low <= truth <= interval.high
    return hits / SIMULATIONS


def _truth(scores: str, how: Aggregate) -> float:
    if scores == "normal":
        return 0.0
    # The mean of an exponential between its quartiles ln(4/3) and ln 4: x e^-x integrates to -(x + 1) e^-x.
    low = math.log(4 / 3)
    high = math.log(4)
    return 1.0 if how == "mean" else 2 * ((low + 1) * math.exp(-low) - (high + 1) * math.exp(-high))


def coverage_rows() -> list[tuple[str, ...]]:
    return [
        (
            str(seeds),
            str(envs),
            *(
                f"{100 * coverage(scores, how, seeds, envs):.1f}"
                for scores in SCORES
                for how in ("mean", "iqm")
            ),
        )
        for seeds, envs in SIZES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--turns", type=int, default=5, help="number of measurements of each command"
    )
    parser.add_argument(
        "--write", action="store_true", help="also write the tables into RESULTS.md"
    )
    arguments = parser.parse_args()
    header = (
        "seeds",
        "environments",
        *(f"{scores}, {how}" for scores in SCORES for how in ("mean", "IQM")),
    )
    text = f"""## Comparing runs

`python bench/compare.py`

{table((f"{RUNS} runs of {POINTS:,} evaluations", "seconds", "processor seconds", "bar"), speed(arguments.turns))}

How often a 95 % interval contains the aggregate of infinitely many seeds, in %, over {SIMULATIONS:,} simulated
comparisons. A percentile bootstrap over few seeds is too narrow in every implementation.

{table(header, coverage_rows())}

{machine()}; rlplug at {revision()}."""
    print(text)
    if arguments.write:
        write_section("compare", text)


if __name__ == "__main__":
    sys.exit(main())

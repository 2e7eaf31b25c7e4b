"""How long the first command takes to a policy that solves CartPole-v1, and whether the final evaluation confirms it.

    python bench/time_to_solve.py               # seeds 1 to 5, three repeats each: about a quarter of an hour

Every run is `rlplug run a3c CartPole-v1 --seed N` in an empty directory, with no other option. Asynchronous processes
are not deterministic, so each seed is repeated and the minimum is what counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results import machine, revision, table, write_section

from rlplug_core.runs.journal import Record, read

#: The mean return over 100 episodes at which CartPole-v1 counts as solved (Gymnasium's reward threshold).
SOLVED = 475.0
HEADING = """## Time to solve: `rlplug run a3c CartPole-v1`

`python bench/time_to_solve.py`"""
NOTE = """Times run from the start of the process (imports, tracking store, workers included) to the journal's record of
the evaluation, which takes 100 episodes. {machine}; rlplug at {revision}."""


def solve(seed: int) -> dict[str, Any]:
    """One run, from process start: seconds to the first passing evaluation and to the end, and the final return."""
    rlplug = Path(sys.executable).with_name("rlplug")
    with tempfile.TemporaryDirectory() as directory:
        command = [str(rlplug), "run", "a3c", "CartPole-v1", "--seed", str(seed)]
        started = time.time()
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        seconds = time.time() - started
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)} failed with {ended.returncode}:\n{ended.stderr}")
        (journal,) = Path(directory).glob("runs/*/journal.jsonl")
        records = list(read(journal))
    return {"seed": seed, "wall_s": seconds, **outcome(records, started)}


def outcome(records: Sequence[Record], started: float) -> dict[str, Any]:
    """What a journal says of a run whose process started at `started` (seconds since the epoch)."""
    passing = [
        r for r in records if r.kind == "evaluation" and r.data["eval/return_mean"] >= SOLVED
    ]
    (final,) = [r for r in records if r.kind == "final_eval"]
    first = passing[0] if passing else None
    return {
        "solved_s": first.time / 1000 - started if first else None,
        "solved_step": first.step if first else None,
        "final": final.data["return_mean"],
    }


def row(seed: int, runs: Sequence[dict[str, Any]]) -> list[str]:
    """One line of the table: the repeats of a seed."""
    seconds = ", ".join(
        "never" if run["solved_s"] is None else f"{run['solved_s']:.1f}" for run in runs
    )
    steps = ", ".join(
        "never" if run["solved_step"] is None else f"{run['solved_step']:,}" for run in runs
    )
    finals = ", ".join(f"{run['final']:.1f}" for run in runs)
    walls = ", ".join(f"{run['wall_s']:.1f}" for run in runs)
    return [
        str(seed),
        finals,
        f"**{min(run['final'] for run in runs):.1f}**",
        seconds,
        steps,
        walls,
    ]


def section(runs: Sequence[dict[str, Any]], seeds: Sequence[int]) -> str:
    """The text for RESULTS.md."""
    header = [
        "seed",
        "final returns",
        "lowest",
        "s to first ≥ 475",
        "env steps to it",
        "s to the end",
    ]
    rows = [row(seed, [run for run in runs if run["seed"] == seed]) for seed in seeds]
    lowest = min(run["final"] for run in runs)
    times = [run["solved_s"] for run in runs if run["solved_s"] is not None]
    never = len(runs) - len(times)
    met = "✓" if lowest >= SOLVED else "✗ missed"
    summary = f"Lowest final return {lowest:.1f} (bar: ≥ {SOLVED:g} everywhere {met})."
    if times:
        summary += (
            f" Seconds to the first passing evaluation: median {statistics.median(times):.1f}, "
        )
        summary += f"longest {max(times):.1f} (aim: ≤ 30)."
    if never:
        summary += f" {never} of {len(runs)} runs had no passing evaluation."
    note = NOTE.format(machine=machine(), revision=revision())
    return f"{HEADING}\n\n{table(header, rows)}\n\n{summary}\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 1 to this")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each seed")
    parser.add_argument(
        "--write", action="store_true", help="write the table into bench/RESULTS.md too"
    )
    given = parser.parse_args()
    seeds = range(1, given.seeds + 1)
    runs = []
    for _ in range(given.repeats):
        for seed in seeds:
            runs.append(solve(seed))
            print(json.dumps(runs[-1]), file=sys.stderr)
    text = section(runs, seeds)
    print(text)
    if given.write:
        write_section("time-to-solve", text)


if __name__ == "__main__":
    main()

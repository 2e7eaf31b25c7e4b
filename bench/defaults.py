"""Compare learning with default options: rlplug and Stable-Baselines3. Writes a table into RESULTS.md.

    python bench/defaults.py                              # every goal, seeds 1 to 5 on both sides: about four hours
    python bench/defaults.py --only ppo/Hopper-v5         # one goal
    python bench/defaults.py --report                     # write the table without training

Each finished run is a line of defaults.jsonl and is not repeated.
"""

# ruff: noqa: E402  # threads are set before numpy is imported
from __future__ import annotations

import os

for library in ("OMP", "OPENBLAS"):
    os.environ[f"{library}_NUM_THREADS"] = "1"  # like the command line

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from peers import HERE, peer_python, run_script
from results import ROOT, bootstrap, interquartile_mean, machine, revision, table, write_section

from rlplug_core.runs.api import train
from rlplug_core.runs.journal import read

RECORDS = Path(__file__).with_name("defaults.jsonl")
SIDES = ("Stable-Baselines3", "rlplug")
SEEDS = (1, 2, 3, 4, 5)
#: Number of evaluations during training, episodes of each, episodes of the final evaluation; all episodes are greedy.
EVALUATIONS = 10
EPISODES = 5
FINAL = 30
NOTE = """`python bench/defaults.py`: `rlplug run ALGO ENV` and `ALGO("MlpPolicy", ENV)` of Stable-Baselines3 with
the same number of env steps and no option that changes learning. BipedalWalker-v3 and MountainCar-v0 have their own
presets in rlplug; the other environments get the preset of their kind. {evaluations} evaluations of {episodes} greedy
episodes select the best weights. Returns are means of {final} greedy episodes on new seeds, then interquartile means
over the training seeds with percentile bootstrap intervals (95 %). Seconds are medians of whole runs on a machine that
also did other work. {machine}; rlplug at {revisions}."""


@dataclass(frozen=True)
class Goal:
    """One comparison; both sides train for `steps` env steps."""

    algorithm: str
    env: str
    steps: int

    @property
    def name(self) -> str:
        """The form that `--only` accepts."""
        return f"{self.algorithm}/{self.env}"


GOALS = (
    Goal("ppo", "InvertedPendulum-v5", 50_000),
    Goal("ppo", "Hopper-v5", 100_000),
    Goal("ppo", "Walker2d-v5", 100_000),
    Goal("ppo", "BipedalWalker-v3", 100_000),
    Goal("ppo", "Taxi-v4", 100_000),
    Goal("a2c", "InvertedPendulum-v5", 50_000),
    Goal("a2c", "Hopper-v5", 100_000),
    Goal("dqn", "MountainCar-v0", 100_000),
    Goal("dqn", "FrozenLake-v1", 50_000),
    Goal("sac", "Reacher-v5", 10_000),
    Goal("sac", "Hopper-v5", 30_000),
    Goal("sac", "Walker2d-v5", 30_000),
    Goal("td3", "Reacher-v5", 10_000),
    Goal("td3", "Hopper-v5", 30_000),
    Goal("td3", "Walker2d-v5", 30_000),
)


def ours(goal: Goal, seed: int) -> dict[str, Any]:
    """Train rlplug with its defaults; only evaluation options are set."""
    judging = {
        "eval_every": goal.steps // EVALUATIONS,
        "eval_episodes": EPISODES,
        "final_eval_episodes": FINAL,
    }
    options = {"seed": seed, "total_timesteps": goal.steps, "threads": 1, **judging}
    with tempfile.TemporaryDirectory() as directory:
        records = list(
            read(train(goal.algorithm, goal.env, options, out=directory, hooks=False).journal)
        )
    means = [record.data["eval/return_mean"] for record in records if record.kind == "evaluation"]
    (final,) = [record.data for record in records if record.kind == "final_eval"]
    return {"best": final["return_mean"], "last": final["last_return_mean"], "evaluations": means}


def theirs(goal: Goal, seed: int, cache: Path) -> dict[str, Any]:
    """Train Stable-Baselines3 in its own virtual environment."""
    script = [
        peer_python("sb3", cache),
        str(HERE / "peers" / "sb3_defaults.py"),
        goal.algorithm,
        goal.env,
    ]
    numbers = {
        "seed": seed,
        "steps": goal.steps,
        "evaluations": EVALUATIONS,
        "episodes": EPISODES,
        "final": FINAL,
    }
    words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    return run_script(script + words, threads=1)


def section(records: list[dict[str, Any]]) -> str:
    """Return the section of RESULTS.md."""
    lines = [line for goal in GOALS for line in rows(goal, records)]
    header = [
        "algorithm",
        "environment",
        "env steps",
        "side",
        "seeds",
        "last weights",
        "best weights",
        "seconds",
    ]
    revisions = ", ".join(
        sorted({record["revision"] for record in records if record["side"] == "rlplug"})
    )
    about = NOTE.format(
        evaluations=EVALUATIONS,
        episodes=EPISODES,
        final=FINAL,
        machine=machine(),
        revisions=revisions,
    )
    return (
        f"## Default options, compared with Stable-Baselines3\n\n{about}\n\n{table(header, lines)}"
    )


def rows(goal: Goal, records: list[dict[str, Any]]) -> Iterator[list[str]]:
    for side in SIDES:
        found = [
            r
            for r in records
            if (r["goal"], r["steps"], r["side"]) == (goal.name, goal.steps, side)
        ]
        if found:
            means = [
                middle(np.array([record[weights] for record in found]))
                for weights in ("last", "best")
            ]
            seconds = f"{np.median([record['seconds'] for record in found]):.0f}"
            yield [
                f"`{goal.algorithm}`",
                goal.env,
                f"{goal.steps:,}",
                side,
                str(len(found)),
                *means,
                seconds,
            ]


def middle(scores: npt.NDArray[np.float64]) -> str:
    """Return the interquartile mean over seeds with its bootstrap interval."""
    mean = float(interquartile_mean(scores))
    digits = 2
    if abs(mean) >= 2:
        digits = 0 if abs(mean) >= 100 else 1
    low, high = np.percentile(bootstrap(scores, 0), [2.5, 97.5])
    return f"**{mean:,.{digits}f}** ({low:,.{digits}f} to {high:,.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [goal.name for goal in GOALS]
    parser.add_argument("--only", nargs="+", metavar="ALGO/ENV", choices=names, default=names)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument(
        "--cache",
        type=Path,
        default=ROOT / ".nox" / "peers",
        help="folder of the virtual environments of peers",
    )
    parser.add_argument("--report", action="store_true", help="only write the table")
    arguments = parser.parse_args()
    wanted = [goal for goal in GOALS if goal.name in arguments.only and not arguments.report]
    for goal, seed, side in [
        (goal, seed, side)
        for goal in wanted
        for seed in arguments.seeds
        for side in arguments.sides
    ]:
        key = {"goal": goal.name, "steps": goal.steps, "side": side, "seed": seed}
        if any(key.items() <= record.items() for record in read_records(RECORDS)):
            continue
        started = time.monotonic()
        result = ours(goal, seed) if side == "rlplug" else theirs(goal, seed, arguments.cache)
        line = {
            **key,
            **result,
            "seconds": round(time.monotonic() - started),
            "revision": revision(),
        }
        with RECORDS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{key}: {result['last']:.1f}, {result['best']:.1f}", file=sys.stderr, flush=True)
    write_section("defaults", section(read_records(RECORDS)))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of finished runs."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()

"""Does a study find better options than those that come with rlplug? PPO and DQN on CartPole, on seeds no trial used.

    python -m pip install 'rlplug-cli[tune]' && python bench/tune.py --write

For each algorithm: `rlplug tune`, then the options that `rlplug run` takes by itself (its preset for CartPole) and
those that were found, each on the same held-back seeds and for the same number of env steps. Typed again it goes on;
runs are kept in `--directory`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "tune.md"
STEPS = {"ppo": 15_000, "dqn": 15_000}
RANGES = {
    "ppo": (
        "--learning-rate",
        "3e-4..1e-2:log",
        "--n-steps",
        "16..128",
        "--gae-lambda",
        "0.8..1.0",
        "--clip-range",
        "0.1..0.4",
        "--n-epochs",
        "5..20",
    ),
    "dqn": (
        "--learning-rate",
        "3e-4..3e-3:log",
        "--tau",
        "0.003..0.05:log",
        "--target-update-interval",
        "1",
        "--train-freq",
        "16",
        "--gradient-steps",
        "8,16",
        "--batch-size",
        "64,128",
        "--exploration-fraction",
        "0.05..0.3",
    ),
}
#: Options that are no part of the question: little time in evaluations while a trial trains, the same for all.
EVERY = ("--eval-episodes", "10", "--final-eval-episodes", "50")


def rlplug(directory: Path, *words: str) -> str:
    """What a command prints to stdout; its progress is shown."""
    variables = {**os.environ, "RLPLUG_DISABLED_PLUGINS": "mlflow"}
    command = [sys.executable, "-m", "rlplug_cli", *words]
    return subprocess.run(
        command, cwd=directory, env=variables, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def judged(directory: Path, algorithm: str, trials: int, seeds: str) -> tuple[str, str]:
    """The rows of an algorithm, and what was found."""
    steps = ("--total-timesteps", str(STEPS[algorithm]))
    study = (
        "--trials",
        str(trials),
        "--seeds",
        "2",
        "--name",
        f"{algorithm}-study",
        "--export",
        f"{algorithm}.toml",
    )
    words = ("tune", algorithm, "CartPole-v1", *RANGES[algorithm], *steps, *EVERY, *study, "--json")
    found = json.loads(rlplug(directory, *words))
    rows = ""
    for title, more in (("as they come", steps), ("tuned", ("--config", f"{algorithm}.toml"))):
        name = f"{algorithm}-{title.replace(' ', '-')}"
        words = (
            "run",
            algorithm,
            "CartPole-v1",
            *more,
            *EVERY,
            "--seeds",
            seeds,
            "--name",
            name,
            "--json",
        )
        rlplug(directory, *words)
        rows += row(algorithm, title, json.loads(rlplug(directory, "compare", name, "--json")))
    options = ", ".join(
        f"`{name}` {shown(value)}" for name, value in found["best"]["params"].items()
    )
    states = [one["state"] for one in found["trials"]]
    return (
        rows,
        f"`{algorithm}`: {states.count('complete')} whole and {states.count('pruned')} pruned; {options}",
    )


def shown(value: str | float) -> str:
    """A value that was found; one of a list is as it was typed."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def row(algorithm: str, title: str, compared: dict[str, Any]) -> str:
    """A line of the table: interquartile mean and mean of the last weights' final returns, with their intervals."""
    (last,) = [one for one in compared["scores"] if one["checkpoint"] == "last"]
    iqm, mean = (
        f"{last[kind]['value']:.1f} [{last[kind]['low']:.1f}, {last[kind]['high']:.1f}]"
        for kind in ("iqm", "mean")
    )
    return f"| `{algorithm}` | {title} | {iqm} | {mean} |\n"


def main() -> None:
    """Measure, print, and write the table between the marks of `docs/tune.md`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("algorithms", nargs="*", default=list(STEPS), help="ppo, dqn")
    parser.add_argument("--trials", type=int, default=25, help="of each study")
    parser.add_argument(
        "--seeds",
        default="101,102,103,104,105,106,107,108,109,110",
        help="those that are held back",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(".nox/tune"),
        help="where runs are made and found again",
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/tune.md")
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    found = [
        judged(arguments.directory, name, arguments.trials, arguments.seeds)
        for name in arguments.algorithms
    ]
    text = "| algorithm | options | IQM [95 %] | mean [95 %] |\n|---|---|---|---|\n"
    text += (
        "".join(rows for rows, _ in found)
        + "\nFound: "
        + ";\n".join(said for _, said in found)
        + "."
    )
    print(text)
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        new = f"<!-- study -->\n{text}\n<!-- /study -->"
        PAGE.write_text(
            re.sub("<!-- study -->.*<!-- /study -->", lambda _: new, page, flags=re.S),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()

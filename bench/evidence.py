"""Write the results of presets in LEARNING.md into rlplug-algos, so that `rlplug info ENV` shows them.

    python bench/evidence.py

A goal counts only if its runs changed no option of the preset except their length and evaluations. Tables from other
sources do not count, because their settings are translated and their results belong to other code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from goals import GOALS, Goal

from rlplug_core.plugins.presets import preset

HERE = Path(__file__).parent
LEARNING = HERE / "LEARNING.md"
PRESETS = HERE.parent / "rlplug-algos" / "src" / "rlplug_algos" / "presets"
RESULTS = PRESETS / "results.json"
#: Options that change how long a run is and how it is evaluated, not how it learns.
NEUTRAL = {"total_timesteps", "eval_every", "eval_episodes", "final_eval_episodes"}
#: Algorithms, table titles and result file of the example rlplug-marl; its rows use its presets.
MARL = ("qmix", "vdn")
MARL_TITLES = (
    "algorithm",
    "environment",
    "env steps",
    *(f"seed {n}" for n in range(1, 6)),
    "result",
    "last",
)
MARL_RESULTS = HERE.parent / "examples/rlplug-marl/src/rlplug_marl/presets/results.json"
#: Tables of one lucky episode, and of updates instead of env steps.
NOT_COUNTED = {"classic", "offline"}


def counts(goal: Goal) -> bool:
    """Return whether the runs of a goal measure a preset."""
    others = {name: value for name, value in goal.options if name not in NEUTRAL}
    plain = not others or others.items() <= preset(goal.algorithm, goal.env).items()
    return plain and not goal.variant and not goal.at_most and goal.part not in NOT_COUNTED


def results(text: str) -> list[dict[str, object]]:
    """Return the rows of tables in LEARNING.md that measure a preset."""
    known = {path.stem for path in PRESETS.glob("*.toml")}
    goals = {
        (goal.algorithm, goal.env.rpartition(":")[2], f"{goal.steps:,}"): goal
        for goal in GOALS
        if counts(goal) and goal.algorithm in known
    }
    found = []
    titles: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        titles = cells if line.startswith("| algorithm |") else titles
        row = dict(zip(titles, cells, strict=False))
        words = [row.get(title, "").strip("`") for title in ("algorithm", "environment")]
        goal = goals.get((*words, row.get("env steps", "")))
        if line.startswith("| `") and goal is not None and not misses(goal, row):
            found.append(entry(goal, row))
    return [one for one in found if one["result"] is not None]


def misses(goal: Goal, row: dict[str, str]) -> bool:
    """Return whether a preset learned too little to be shown."""
    return goal.part == "presets" and row["pass"] == "no"


def entry(goal: Goal, row: dict[str, str]) -> dict[str, object]:
    """Return a row as `rlplug info` reads it."""
    result, _, how = row["result"].partition(" (")
    seeds = sum(number(row[f"seed {seed}"]) is not None for seed in range(1, 6))
    of = how.rstrip(")") or "worst seed"
    return {
        "algorithm": goal.algorithm,
        "env": goal.env,
        "steps": goal.steps,
        "seeds": seeds,
        "result": number(result),
        "of": f"share of goals, {of}" if goal.success else of,
        "last": number(row["last"]),
    }


def marl_results(text: str) -> list[dict[str, object]]:
    """Return the rows of rlplug-marl, which run its presets in its own worlds."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if cells[0] in MARL:
            row = dict(zip(MARL_TITLES, cells, strict=False))
            goal = Goal(cells[0], cells[1], int(cells[2].replace(",", "")))
            found.append(entry(goal, row))
    return found


def number(text: str) -> float | None:
    plain = text.replace(",", "")
    return float(plain) if re.fullmatch(r"-?\d+(\.\d+)?", plain) else None


def content() -> str:
    """Return the content of `results.json`."""
    return as_file(results(LEARNING.read_text(encoding="utf-8")))


def content_of_marl() -> str:
    """Return the content of the file of rlplug-marl."""
    return as_file(marl_results(LEARNING.read_text(encoding="utf-8")))


def as_file(rows: list[dict[str, object]]) -> str:
    return json.dumps(rows, indent=1) + "\n"


if __name__ == "__main__":
    RESULTS.write_text(content(), encoding="utf-8")
    MARL_RESULTS.write_text(content_of_marl(), encoding="utf-8")

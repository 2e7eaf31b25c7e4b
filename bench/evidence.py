"""Write the results of presets in LEARNING.md into rlplug-algos, so that `rlplug info ENV` shows them.

    python bench/evidence.py

Only rows that ran with the preset and no other options count. A row with other options has another name than its
algorithm. Tables that others published do not count, because their settings are translated and their results belong to
other code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
LEARNING = HERE / "LEARNING.md"
PRESETS = HERE.parent / "rlplug-algos" / "src" / "rlplug_algos" / "presets"
RESULTS = PRESETS / "results.json"
SECTIONS = ("# Learning results of all algorithms", "## Robots", "## Other kinds of environments")
#: Algorithms that use their preset in a section in which others have further options.
PARTLY = {"## MinAtar": {"ppo"}}


def results(text: str) -> list[dict[str, object]]:
    """Return the rows of tables in LEARNING.md that show what a preset reaches."""
    known = {path.stem for path in PRESETS.glob("*.toml")}
    found = []
    section = ""
    titles: list[str] = []
    for line in text.splitlines():
        section = line if line.startswith("#") else section
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        titles = cells if line.startswith("| algorithm |") else titles
        row = dict(zip(titles, cells, strict=False))
        algorithm = row.get("algorithm", "").strip("`")
        counts = section in SECTIONS or algorithm in PARTLY.get(section, ())
        if counts and line.startswith("| `") and algorithm in known:
            found.append(entry(algorithm, row))
    return [one for one in found if one["result"] is not None]


def entry(algorithm: str, row: dict[str, str]) -> dict[str, object]:
    """Return a row as `rlplug info` reads it."""
    result, _, how = row["result"].partition(" (")
    seeds = sum(number(row[f"seed {seed}"]) is not None for seed in range(1, 6))
    return {
        "algorithm": algorithm,
        "env": row["environment"],
        "steps": int(row["env steps"].replace(",", "")),
        "seeds": seeds,
        "result": number(result),
        "of": how.rstrip(")") or "worst seed",
        "last": number(row["last"]),
    }


def number(text: str) -> float | None:
    plain = text.replace(",", "")
    return float(plain) if re.fullmatch(r"-?\d+(\.\d+)?", plain) else None


def content() -> str:
    """Return the content of `results.json`."""
    return json.dumps(results(LEARNING.read_text(encoding="utf-8")), indent=1) + "\n"


if __name__ == "__main__":
    RESULTS.write_text(content(), encoding="utf-8")

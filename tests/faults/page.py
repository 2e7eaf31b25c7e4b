"""Measures kills, sweeps and file operations, and writes the tables of `docs/reliability.md`.

python -m tests.faults.page [SHARE]      a share below 1 tests only this share of file operations
"""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.faults import files, kills, many, power

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def write(name: str, lines: list[str]) -> None:
    """Replace the lines between the marks of this name."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = PAGE.read_text(encoding="utf-8")
    content = "\n".join([start, *lines, end])
    PAGE.write_text(re.sub(f"{start}.*?{end}", lambda _: content, text, flags=re.DOTALL), encoding="utf-8")


def kills_table(outcomes: list[kills.Outcome]) -> list[str]:
    total = sum(outcome.kills for outcome in outcomes)
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    rows = [kills.row(outcome) for outcome in outcomes]
    header = ["| algorithm | form | kills | wrong |", "|---|---|---|---|"]
    return [_summary(f"{total} kills of {len(outcomes)} runs, {wrong} of them wrong"), "", *header, *rows]


def sweeps_table(outcomes: list[many.Outcome]) -> list[str]:
    """The table of sweeps and studies."""
    total = sum(outcome.kills.total() for outcome in outcomes)
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    header = [
        "| command | itself | a run | itself and a run | Ctrl-C | runs | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    return [_summary(f"{total} kills, {wrong} of {len(outcomes)} wrong"), "", *header, *map(many.row, outcomes)]


def files_table(outcomes: list[files.Outcome], share: float) -> list[str]:
    """The table of file operations."""
    total = sum(outcome.trials for outcome in outcomes)
    wrong = sum(len(outcome.wrong) for outcome in outcomes)
    drawn = "every one" if share >= 1 else f"a share of {share:g}, drawn at random"
    header = ["| command | fault | trials | survived | wrong |", "|---|---|---|---|---|"]
    return [_summary(f"{total} faults ({drawn}), {wrong} wrong"), "", *header, *map(files.row, outcomes)]


def power_sentence(trials: int, wrong: list[str]) -> list[str]:
    """The sentence about power failures."""
    return [_summary(f"{trials} power failures, {len(wrong)} wrong")]


def _summary(results: str) -> str:
    return f"Measured on {datetime.now(UTC):%Y-%m-%d}: {results}."


def main(share: float) -> int:
    """Measure and write the tables; return the number of wrong runs and faults."""
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    killed = kills.table()
    write("kills", kills_table(killed))
    sweeps = many.table()
    write("many", sweeps_table(sweeps))
    failed = files.table(share)
    write("files", files_table(failed, share))
    trials, failures = power.table(share)
    write("power", power_sentence(trials, failures))
    wrong = len(failures) + sum(bool(outcome.wrong) for outcome in (*killed, *sweeps))
    return wrong + sum(len(outcome.wrong) for outcome in failed)


if __name__ == "__main__":
    sys.exit(min(1, main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)))

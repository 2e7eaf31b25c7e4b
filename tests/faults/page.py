"""Measures what `docs/reliability.md` says of kills, of sweeps and of file operations, and writes its tables anew.

python -m tests.faults.page [SHARE]      a share below 1 draws that many faults of file operations
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
    """Put lines between the marks of this name."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = PAGE.read_text(encoding="utf-8")
    content = "\n".join([begin, *lines, end])
    PAGE.write_text(re.sub(f"{begin}.*?{end}", lambda _: content, text, flags=re.DOTALL), encoding="utf-8")


def of_kills(outcomes: list[kills.Outcome]) -> list[str]:
    """The table of kills."""
    total, wrong = sum(one.kills for one in outcomes), sum(bool(one.wrong) for one in outcomes)
    rows = [kills.row(one) for one in outcomes]
    header = ["| algorithm | form | kills | wrong |", "|---|---|---|---|"]
    return [_when(f"{total} kills of {len(outcomes)} runs, {wrong} of them wrong"), "", *header, *rows]


def of_many(outcomes: list[many.Outcome]) -> list[str]:
    """The table of sweeps and studies."""
    total, wrong = sum(one.kills.total() for one in outcomes), sum(bool(one.wrong) for one in outcomes)
    header = [
        "| command | itself | a run | itself and a run | Ctrl-C | runs | wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    return [_when(f"{total} kills, {wrong} of {len(outcomes)} wrong"), "", *header, *map(many.row, outcomes)]


def of_files(outcomes: list[files.Outcome], share: float) -> list[str]:
    """The table of file operations."""
    total, wrong = sum(one.trials for one in outcomes), sum(len(one.wrong) for one in outcomes)
    drawn = "every one" if share >= 1 else f"a share of {share:g}, drawn at random"
    header = ["| command | fault | trials | survived | wrong |", "|---|---|---|---|---|"]
    return [_when(f"{total} faults ({drawn}), {wrong} wrong"), "", *header, *map(files.row, outcomes)]


def of_power(trials: int, wrong: list[str]) -> list[str]:
    """The sentence about power failures."""
    return [_when(f"{trials} power failures, {len(wrong)} wrong")]


def _when(what: str) -> str:
    return f"Measured on {datetime.now(UTC):%Y-%m-%d}: {what}."


def main(share: float) -> int:
    """Measure and write; the number of runs and faults that are wrong."""
    os.environ["RLPLUG_DISABLED_PLUGINS"] = "mlflow"
    killed = kills.table()
    write("kills", of_kills(killed))
    often = many.table()
    write("many", of_many(often))
    failed = files.table(share)
    write("files", of_files(failed, share))
    trials, lost = power.table(share)
    write("power", of_power(trials, lost))
    wrong = len(lost) + sum(bool(one.wrong) for one in (*killed, *often))
    return wrong + sum(len(one.wrong) for one in failed)


if __name__ == "__main__":
    sys.exit(min(1, main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)))

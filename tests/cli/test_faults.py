"""A part of `nox -s faults`: killed runs and failing file operations, compared with a complete run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlplug_core import plugins
from tests.faults.kills import forms
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]


def table(module: str, *words: str, **environment: str) -> list[list[str]]:
    """Return the cells of the table that a module prints; it exits with 0 if nothing is wrong."""
    result = subprocess.run(
        [sys.executable, "-m", f"tests.faults.{module}", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in result.stdout.splitlines()]


def test_killed_run_ends_like_a_complete_run() -> None:
    rows = table("kills", "a2c", RLPLUG_KILLS="2")
    assert [row[:2] for row in rows] == [["a2c", "sync"], ["a2c", "inline"]]
    assert all(int(kills) > 0 for _, _, kills, _ in rows)


def test_table_of_kills_has_all_algorithms_and_runners() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S+) \| \d+ \| none \|$", page, re.MULTILINE)
    assert {(name, form) for name in plugins.ids("algorithms") for form in forms(name)} <= set(rows)


@pytest.mark.slow  # `tests/core/runs/test_nothing_lost.py` lets file operations fail in one process
@pytest.mark.skipif(shutil.which("cc") is None, reason="the library that makes files fail needs a C compiler")
def test_run_reports_failed_file_operations_and_continues() -> None:
    rows = table("files", "0.01", "run")
    assert [row[1] for row in rows] == ["kill", "ENOSPC", "EIO", "ESTALE", "EACCES", "EMFILE"]
    assert sum(int(trials) for _, _, trials, _, _ in rows) > 5

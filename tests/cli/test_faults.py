"""A slice of what `nox -s faults` does for all: kills and failing file operations, compared with a whole run."""

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
    """The cells of the table that a module prints; it ends well where nothing is wrong."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.faults.{module}", *words], cwd=ROOT, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]


def test_a_run_that_is_killed_ends_like_one_that_was_left_alone() -> None:
    rows = table("kills", "a2c", RLPLUG_KILLS="2")
    assert [row[:2] for row in rows] == [["a2c", "sync"], ["a2c", "inline"]]
    assert all(int(kills) > 0 for _, _, kills, _ in rows)


def test_every_form_of_every_algorithm_is_in_the_table_of_kills() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S+) \| (\S+) \| \d+ \| none \|$", page, re.MULTILINE)
    assert {(name, form) for name in plugins.ids("algorithms") for form in forms(name)} <= set(rows)


@pytest.mark.slow  # `tests/core/runs/test_nothing_lost.py` lets file operations fail in one process
@pytest.mark.skipif(shutil.which("cc") is None, reason="the library that makes files fail needs a C compiler")
def test_whatever_file_operation_fails_the_run_says_so_and_goes_on() -> None:
    rows = table("files", "0.01", "run")
    assert [row[1] for row in rows] == ["kill", "ENOSPC", "EIO", "ESTALE", "EACCES", "EMFILE"]
    assert sum(int(trials) for _, _, trials, _, _ in rows) > 5

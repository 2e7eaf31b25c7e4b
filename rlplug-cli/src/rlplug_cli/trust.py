"""`--trust`: whether code that came with a run may be executed although this account has not written it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

option = click.option(
    "--trust", is_flag=True, help="Execute code that came with the run, whoever wrote it."
)


def given(run: Path, trust: bool) -> bool:
    """Return whether it may: as the option says, or as the user answers on a terminal; the core refuses the rest."""
    if trust or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return trust
    from rlplug_core.runs.directory import RunDirectory
    from rlplug_core.runs.trust import doubts

    found = doubts(run, RunDirectory.open(run).config)
    return bool(found) and click.confirm(
        f"this would execute {' and '.join(found)}; go on?", err=True
    )

"""`--trust`: permission to execute code that came with a run and that this account has not written."""

from __future__ import annotations

import sys
from pathlib import Path

import click

option = click.option(
    "--trust",
    is_flag=True,
    help="Execute code that came with the run, even if somebody else wrote it.",
)


def confirm_trust(run: Path, trust: bool) -> bool:
    """Return whether it may run: by the option, or by the user's answer on a terminal; core refuses the rest."""
    if trust or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return trust
    from rlplug_core.runs import RunDirectory, doubts

    unknown_code = doubts(run, RunDirectory.open(run).config)
    return bool(unknown_code) and click.confirm(
        f"this would execute {' and '.join(unknown_code)}; continue?", err=True
    )

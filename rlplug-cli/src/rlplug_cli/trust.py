"""`--trust`: permission to execute code that came with a run and that this account has not written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlplug_cli.threads import one_thread
from rlplug_core.runs import find_run

if TYPE_CHECKING:
    from rlplug_core.runs import Run

trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Execute code that came with the run, even if another user wrote it.",
)


def confirm_trust(run: Path, trust: bool) -> bool:
    """Return whether the run's code may be executed: by the option, or by the user's answer on a terminal.

    Core refuses the rest.
    """
    if trust or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return trust
    from rlplug_core.runs import RunDirectory, code_without_seal

    directory = RunDirectory.open(run)
    # An export contains no code; its environment may be code, which the option trusts.
    if directory.is_export:
        return trust
    unknown_code = code_without_seal(run, directory.config)
    return bool(unknown_code) and click.confirm(
        f"this would execute {' and '.join(unknown_code)}; continue?", err=True
    )


def open_run(word: str, trust: bool) -> Run:
    """Return the run of a path or a name in runs/; if its code is not trusted, ask the user on a terminal.

    Raises:
        UsageError: there is none. Untrusted: it has code that is not trusted.
    """
    path = find_run(word)
    one_thread()
    from rlplug_core.runs import Run

    return Run(path, trust=confirm_trust(path, trust))

"""The live page of a comparison: curves of runs while they train, `rlplug compare --serve`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path

from rlplug_cli.compare.lines import Settings
from rlplug_cli.compare.page import content, shell
from rlplug_cli.compare.report import report
from rlplug_cli.compare.selection import select_runs
from rlplug_cli.compare.serve import Content, LiveServer
from rlplug_core.errors import UsageError


def live_server(
    words: Sequence[str],
    out: Path,
    metric: str,
    by: Sequence[str],
    settings: Settings,
    *,
    port: int,
    every: float,
) -> LiveServer:
    """Return a server of the comparison of the runs that words name; runs that start later are found, too.

    Raises:
        UsageError: a word names nothing, or the port cannot be used.
    """
    select_runs(words, out)

    def make() -> str:
        return live_content(words, out, metric, by, settings)

    page: Callable[[str, str], str] = partial(shell, " ".join(words))
    try:
        return LiveServer(port, page, Content(make, every))
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port"
        ) from error


def live_content(
    words: Sequence[str],
    out: Path,
    metric: str,
    by: Sequence[str],
    settings: Settings,
) -> str:
    """Return the comparison at this moment, or why there is none yet."""
    try:
        comparison = report(words, out, (metric,), by, settings, running=True)
    except UsageError as error:
        return f'<p class="remarks">Nothing to draw yet: {escape(str(error))}.</p>'
    return content(comparison, " ".join(words))

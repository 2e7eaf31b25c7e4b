"""Show a run while it trains: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rlplug_cli.output import redraws
from rlplug_cli.render.trace import Trace
from rlplug_core.config import figures
from rlplug_core.errors import plain

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from rlplug_core.loop import Progress

PHASES = {"training": "training", "evaluating": "evaluating", "final_eval": "final evaluation"}
#: The losses that displays can draw; they draw the first one that the algorithm has.
LOSSES = ("loss/value", "loss/policy")


def loss_to_draw(progress: Progress) -> float | None:
    """Return the loss that displays draw, or None before the first log record."""
    return next((progress.losses[name] for name in LOSSES if name in progress.losses), None)


@contextmanager
def display(
    title: str,
    stream: TextIO | None = None,
) -> Iterator[Callable[[Progress], None]]:
    """Yield the function for `train(watch=…)`; the display is live if `stream` (default: stdout) is a terminal."""
    stream = stream or sys.stdout
    title = plain(title)
    if redraws(stream):
        with _live(title, stream) as watch:
            yield watch
    else:
        yield Lines(title, stream)


class Lines:
    """Prints the title at once, then one line per twentieth of the run and per evaluation."""

    def __init__(self, title: str, stream: TextIO, parts: int = 20) -> None:
        print(title, file=stream, flush=True)
        self.stream = stream
        self.parts = parts
        self.last: tuple[int, float | None] = (0, None)

    def __call__(self, progress: Progress) -> None:
        if progress.message:
            print(progress.message, file=self.stream, flush=True)
        now = (self.parts * progress.steps // progress.total, progress.evaluation)
        if now != self.last and progress.phase != "evaluating":
            self.last = now
            print(line(progress), file=self.stream, flush=True)


def line(progress: Progress) -> str:
    """Return a run's progress in one line."""
    parts = [f"{progress.steps:>{len(f'{progress.total:,}')},}/{progress.total:,} steps"]
    if progress.steps_per_second > 0:
        parts.append(f"{speed(progress.steps_per_second)} steps/s")
    if progress.return_mean is not None:
        parts.append(f"return {number(progress.return_mean)}")
    if progress.evaluation is not None:
        parts.append(f"evaluation {number(progress.evaluation)} (best {number(progress.best)})")
    if math.isfinite(progress.eta_s):
        parts.append(f"{duration(progress.eta_s)} to go")
    return "  ".join(parts)


def speed(value: float) -> str:
    """Return a speed, or a dash before it is known."""
    return f"{value:,.0f}" if value > 0 else "-"


def number(value: float | None) -> str:
    """Return a return as `figures` formats it, or a dash for None."""
    return "-" if value is None else figures(value)


def duration(seconds: float) -> str:
    """Return hours, minutes and seconds, or a dash if they are not known."""
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


@contextmanager
def _live(title: str, stream: TextIO) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.live import Live

    screen = Screen()
    console = Console(file=stream)
    # The title is not part of the live display: the report of the environment and of the networks follows it.
    console.print(title, style="bold", highlight=False, markup=False)
    with Live(console=console, auto_refresh=False) as live:

        def watch(progress: Progress) -> None:
            if progress.message:
                live.console.print(progress.message, style="bold yellow", highlight=False)
            live.update(screen.draw(progress, console.width), refresh=True)

        yield watch


class Screen:
    """The live display below the title: the phase, a bar, and numbers."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.traces = {"return": Trace(), "loss": Trace()}

    def draw(self, progress: Progress, width: int = 80) -> Group:
        from rich.console import Group
        from rich.text import Text

        self.traces["return"].add(progress.steps, progress.return_mean)
        self.traces["loss"].add(progress.steps, loss_to_draw(progress))
        lines = [
            Text.assemble((f"{name:<7}", "dim"), trace.draw(width - 7))
            for name, trace in self.traces.items()
            if trace.values
        ]
        phase = PHASES.get(progress.phase, progress.phase)
        elapsed = duration(time.monotonic() - self.started)
        now = Text(f"{phase}   {elapsed}", style="dim")
        return Group(now, _bar(progress), _figures(progress), *lines)


def _bar(progress: Progress) -> Table:
    """Return the bar with the speed and the remaining time."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    bar = Table.grid(padding=(0, 2), expand=True)
    bar.add_column(ratio=1)
    for _ in range(3):
        bar.add_column(no_wrap=True)
    bar.add_row(
        ProgressBar(progress.total, progress.steps),
        f"{progress.steps:,} / {progress.total:,} steps",
        f"{speed(progress.steps_per_second)} steps/s",
        f"{duration(progress.eta_s)} to go",
    )
    return bar


def _figures(progress: Progress) -> Table:
    from rich.table import Table
    from rich.text import Text

    figures = Table.grid(padding=(0, 3))
    figures.add_row(
        Text.assemble(
            f"return of the last {progress.window:,} episodes ",
            (number(progress.return_mean), "bold"),
        ),
        Text.assemble("evaluation ", (number(progress.evaluation), "bold")),
        Text.assemble("best ", (number(progress.best), "bold green")),
    )
    return figures

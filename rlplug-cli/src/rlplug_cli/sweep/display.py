"""The display of a sweep while it runs: one table on a terminal, plain lines everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from rlplug_cli.output import redraws
from rlplug_cli.render.live import duration, number
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_core.errors import clean

if TYPE_CHECKING:
    from rich.console import Console, Group

#: What to show first where not all fits.
ORDER = ("running", "failed", "killed", "interrupted", "waiting", "missing", "finished")
#: Lines that are not those of runs.
MARGIN = 6


@contextmanager
def display(
    title: str, crew: TaskPool, stream: TextIO | None, so_far: Callable[[], str]
) -> Iterator[Callable[[Sequence[Entry]], None]]:
    """Yield what is called after each look, with the tasks that have just ended; live where `stream` is a terminal.

    `so_far` says how far the whole is. Without a stream nothing is shown.
    """
    if stream is None:
        yield lambda ended: None
        return
    if not redraws(stream):
        yield Lines(title, crew, stream, so_far)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    with Live(console=console, auto_refresh=False) as live:

        def show(ended: Sequence[Entry]) -> None:
            live.update(screen(title, crew, console, so_far()), refresh=True)

        yield show


class Lines:
    """One line per task that ends or begins, in this order, with how many are done."""

    def __init__(
        self, title: str, crew: TaskPool, stream: TextIO, so_far: Callable[[], str]
    ) -> None:
        self.crew = crew
        self.stream = stream
        self.so_far = so_far
        self.begun: set[str] = set()
        self._say(f"{title}: {so_far()}")

    def __call__(self, ended: Sequence[Entry]) -> None:
        for entry in ended:
            self.begun.discard(entry.task.name)
            self._say(f"{entry.task.name}: {outcome(self.crew, entry)}  ({self.so_far()})")
        for entry in self.crew.working:
            name = entry.task.name
            if name not in self.begun:
                self.begun.add(name)
                steps = entry.standing.steps
                self._say(f"{name}: goes on at step {steps:,}" if steps else f"{name}: begins")

    def _say(self, text: str) -> None:
        print(clean(text), file=self.stream, flush=True)


def outcome(crew: TaskPool, entry: Entry) -> str:
    """Return how a task ended, in a few words."""
    standing = entry.standing
    if standing.status == "finished":
        finals = [f"{kind} {number(value)}" for kind, value in standing.finals.items()]
        said = f"final return {', '.join(finals)}" if finals else f"return {number(standing.last)}"
        return f"finished in {duration(standing.seconds)}, {said}"
    if standing.status == "interrupted" and (entry.stopped or crew.signal):
        return f"stopped at step {standing.steps:,}"
    return f"{standing.status}: {crew.last_words(entry)}"


def tally(crew: TaskPool) -> str:
    """Return how many tasks are how far."""
    states = [entry.standing.status for entry in crew.entries.values()]
    rest = [
        (states.count(status), status) for status in ("running", "failed", "killed", "interrupted")
    ]
    return ", ".join(
        [
            f"{states.count('finished')} of {len(states)} finished",
            *(f"{n} {s}" for n, s in rest if n),
        ]
    )


def screen(title: str, crew: TaskPool, console: Console, so_far: str) -> Group:
    """The table: a row per task as far as they fit, those that run first."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("RUN", "", "STEPS", "STEPS/S", "RETURN", "EVALUATION", "BEST", "TO GO"):
        table.add_column(
            header,
            no_wrap=True,
            overflow="ellipsis",
            justify="left" if header in ("RUN", "") else "right",
        )
    ordered = sorted(crew.entries.values(), key=lambda entry: ORDER.index(entry.standing.status))
    fitting = ordered[: max(1, console.height - MARGIN)]
    for entry in fitting:
        one = entry.standing
        bar = (
            ProgressBar(1.0, one.share, width=16)
            if one.status in ("running", "finished")
            else Text(one.status, "yellow")
        )
        table.add_row(entry.task.name, bar, *_figures(entry))
    done = sum(entry.standing.share for entry in crew.entries.values()) / max(1, len(crew.entries))
    hidden = len(ordered) - len(fitting)
    below = Text(f"{so_far}{f'; {hidden} not shown' if hidden else ''}", "dim")
    return Group(Text.assemble((title, "bold"), (f"   {100 * done:.0f} %", "dim")), table, below)


def _figures(entry: Entry) -> tuple[str, ...]:
    one = entry.standing
    if one.status == "waiting" or not one.steps:
        return ("",) * 6
    live = one.status == "running"
    speed, to_go = (f"{one.speed:,.0f}", duration(one.eta_s)) if live else ("", "")
    return (
        f"{one.steps:,}",
        speed,
        number(one.train_return),
        number(one.last),
        number(one.best),
        to_go,
    )

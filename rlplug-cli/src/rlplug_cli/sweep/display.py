"""The display of a sweep while it runs: one table on a terminal, plain lines everywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol, TextIO

from rlplug_cli.output import redraws
from rlplug_cli.render.live import duration, number
from rlplug_cli.sweep.task_pool import Entry, TaskPool
from rlplug_core.errors import Interrupted, clean

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

#: The order of rows if the terminal does not have one for every run.
ORDER = ("running", "failed", "killed", "interrupted", "waiting", "finished")
#: Lines of the terminal that are not rows of runs.
MARGIN = 6
#: Columns of figures, and those that a narrow terminal leaves out, in this order.
FIGURES = ("STEPS", "STEPS/S", "RETURN", "EVALUATION", "BEST", "TO GO")
LEAST_IMPORTANT = ("STEPS/S", "RETURN", "EVALUATION", "TO GO", "STEPS")


class Screen(Protocol):
    """Shows the progress of a sweep."""

    def show(self, ended: Sequence[Entry]) -> None:
        """Show the current state; `ended` are the tasks that ended since the last call."""
        ...

    def notify(self, text: str) -> None:
        """Show a sentence at once."""
        ...


class Work(Protocol):
    """The work of a pool of tasks, in steps."""

    @property
    def done(self) -> bool: ...

    def step(self) -> Sequence[Entry]:
        """Poll the tasks and start those that may run; return the tasks that ended."""
        ...


def run_to_end(
    work: Work,
    pool: TaskPool,
    stream: TextIO | None,
    summary: Callable[[], str],
    share: Callable[[], float] | None = None,
) -> Interrupted | None:
    """Do all work and show it; return the interruption, if a signal stopped it. Arguments are those of `display`."""
    try:
        with (
            display(pool.directory.name, pool, stream, summary, share) as screen,
            pool.signals(screen.notify) as wait,
        ):
            while not work.done and not pool.signal:
                screen.show(work.step())
                wait()
    except Interrupted as error:
        return error
    return None


@contextmanager
def display(
    title: str,
    pool: TaskPool,
    stream: TextIO | None,
    summary: Callable[[], str],
    share: Callable[[], float] | None = None,
) -> Iterator[Screen]:
    """Yield the screen of a sweep: a live table if `stream` is a terminal, nothing without a stream, else lines.

    Args:
        summary: returns the state of the whole sweep in a few words.
        share: returns the part of the sweep that is done, from 0 to 1; by default that of the pool's tasks.
    """
    if stream is None:
        yield NoScreen()
    elif not redraws(stream):
        yield Lines(title, pool, stream, summary)
    else:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream)
        with Live(console=console, auto_refresh=False) as live:

            def draw(note: str) -> None:
                done = share() if share else pool.share
                live.update(
                    screen(title, pool, console, summary(), share=done, note=note), refresh=True
                )

            yield LiveScreen(draw)


class NoScreen:
    """Shows nothing."""

    def show(self, ended: Sequence[Entry]) -> None: ...

    def notify(self, text: str) -> None: ...


class LiveScreen:
    """Redraws the table; a notice stays below it."""

    def __init__(self, draw: Callable[[str], None]) -> None:
        self.draw = draw
        self.note = ""

    def show(self, ended: Sequence[Entry]) -> None:
        self.draw(self.note)

    def notify(self, text: str) -> None:
        self.note = text
        self.draw(text)


class Lines:
    """One line per task that ends or starts, with the number of finished tasks."""

    def __init__(
        self,
        title: str,
        pool: TaskPool,
        stream: TextIO,
        summary: Callable[[], str],
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.summary = summary
        self.started: set[str] = set()
        self.notify(f"{title}: {summary()}")

    def show(self, ended: Sequence[Entry]) -> None:
        for entry in ended:
            self.started.discard(entry.task.name)
            self.notify(f"{entry.task.name}: {outcome(self.pool, entry)}  ({self.summary()})")
        for entry in self.pool.working:
            name = entry.task.name
            if name not in self.started:
                self.started.add(name)
                steps = entry.progress.steps
                self.notify(f"{name}: resumes at step {steps:,}" if steps else f"{name}: starts")

    def notify(self, text: str) -> None:
        print(clean(text), file=self.stream, flush=True)


def outcome(pool: TaskPool, entry: Entry) -> str:
    """Return in a few words how a task ended."""
    progress = entry.progress
    if progress.status == "finished":
        finals = [f"{kind} {number(value)}" for kind, value in progress.finals.items()]
        last = f"return {number(progress.last)}"
        score = f"final return {', '.join(finals)}" if finals else last
        return f"finished in {duration(progress.seconds)}, {score}"
    if progress.status == "interrupted" and "--until" in entry.extra:
        return f"paused at step {progress.steps:,}, evaluation {number(progress.last)}"
    if progress.status == "interrupted" and (entry.stopped or pool.signal):
        return f"stopped at step {progress.steps:,}"
    return f"{progress.status}: {pool.failure_reason(entry)}"


def status_counts(pool: TaskPool) -> str:
    """Return the number of tasks in each status."""
    states = [entry.progress.status for entry in pool.entries.values()]
    counts = [f"{states.count('finished')} of {len(states)} finished"]
    for status in ("running", "failed", "killed", "interrupted"):
        if status in states:
            counts.append(f"{states.count(status)} {status}")
    return ", ".join(counts)


def screen(
    title: str,
    pool: TaskPool,
    console: Console,
    summary: str,
    share: float,
    note: str = "",
) -> Group:
    """Return the table with a row per task as far as they fit, running tasks first, and lines above and below."""
    from rich.console import Group
    from rich.text import Text

    entries = pool.entries.values()
    rows = sorted(entries, key=lambda entry: ORDER.index(entry.progress.status))
    rows = rows[: max(1, console.height - MARGIN)]
    hidden = len(entries) - len(rows)
    more = f"; {hidden} not shown" if hidden else ""
    return Group(
        Text.assemble((title, "bold"), (f"   {100 * share:.0f} %", "dim")),
        _fitting_table(rows, console),
        Text(f"{summary}{more}", "dim"),
        *([Text(note, "yellow")] if note else []),
    )


def _fitting_table(rows: Sequence[Entry], console: Console) -> Table:
    """Return the table with as many columns as the terminal has room for."""
    left_out: set[str] = set()
    for name in ("", *LEAST_IMPORTANT):
        left_out.add(name)
        table = _table(rows, [column for column in FIGURES if column not in left_out])
        if (
            console.measure(table, options=console.options.update(width=10_000)).maximum
            <= console.width
        ):
            break
    return table


def _table(rows: Sequence[Entry], columns: Sequence[str]) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("RUN", no_wrap=True, overflow="ellipsis")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, no_wrap=True, justify="right")
    for entry, name in zip(rows, short_names([entry.task.name for entry in rows]), strict=True):
        status = entry.progress.status
        bar = ProgressBar(1.0, entry.progress.share, width=12)
        figures = _figures(entry)
        table.add_row(
            name,
            bar if status in ("running", "finished") else Text(status, "yellow"),
            *(figures.get(column, "") for column in columns),
        )
    return table


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names without the words that all of them start with; the title shows those."""
    if len(names) < 2:
        return list(names)
    # The common start of these two is the common start of all names.
    pairs = zip(min(names), max(names), strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = names[0][:length].rfind("-") + 1
    return [name[start:] for name in names]


def _figures(entry: Entry) -> dict[str, str]:
    progress = entry.progress
    if progress.status == "waiting" or not progress.steps:
        return {}
    running = progress.status == "running"
    return {
        "STEPS": f"{progress.steps:,}",
        "STEPS/S": f"{progress.speed:,.0f}" if running else "",
        "RETURN": number(progress.train_return),
        "EVALUATION": number(progress.last),
        "BEST": number(progress.best),
        "TO GO": duration(progress.eta_s) if running else "",
    }

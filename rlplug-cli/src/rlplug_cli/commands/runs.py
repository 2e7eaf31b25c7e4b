"""`rlplug runs` lists runs; `rlplug runs rm` deletes them; `rlplug runs reap` cleans up after killed ones."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from rlplug_cli import completion
from rlplug_cli.notes import file_name
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.live import number
from rlplug_cli.render.tables import table
from rlplug_cli.shared_options import runs_directory_option
from rlplug_core.errors import UsageError, plain, warn
from rlplug_core.runs import Summary, find_run, remove_run, run_directories, summary

#: The columns that a narrow terminal leaves out, in this order; most names of runs contain the first two.
OPTIONAL_COLUMNS = ("ALGORITHM", "ENVIRONMENT", "LAST", "BEST", "FINAL LAST/BEST", "STEPS")
HEADER = (
    "RUN",
    "STATUS",
    "ALGORITHM",
    "ENVIRONMENT",
    "SEED",
    "STEPS",
    "LAST",
    "BEST",
    "FINAL LAST/BEST",
)
#: Keys of the final evaluation: the return of the last weights, and of the best checkpoint.
FINAL_KEYS = ("last_return_mean", "return_mean")
#: Keys for sorting; runs without a value come last.
KEYS: dict[str, Callable[[Summary], Any]] = {
    "created": lambda run: run.created,
    "name": lambda run: run.name,
    "status": lambda run: run.status,
    "algorithm": lambda run: run.algorithm,
    "env": lambda run: run.env,
    "seed": lambda run: run.seed,
    "steps": lambda run: run.steps,
    "last": lambda run: run.last,
    "best": lambda run: run.best,
    "final": lambda run: final(run),
    "seconds": lambda run: run.seconds,
}
#: Every status of a run.
STATUSES = ("running", "finished", "interrupted", "failed", "killed", "unreadable")


@click.group("runs", invoke_without_command=True)
@runs_directory_option
@click.option(
    "--algorithm", metavar="NAME", help="Only runs of this algorithm; * matches anything."
)
@click.option(
    "--env",
    metavar="NAME",
    help="Only runs on this environment; * matches anything.",
)
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    help="Only runs with this status.",
)
@click.option(
    "--group",
    help="Only runs of this group, all seeds of one configuration; its first characters are enough.",
)
@click.option(
    "--sort",
    type=click.Choice(list(KEYS)),
    help="Sort by this, ascending  [created, newest first]",
)
@click.option(
    "--reverse",
    is_flag=True,
    help="Reverse the order.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="At most so many, the first after sorting.",
)
@click.option(
    "--json",
    is_flag=True,
    help="Write everything as JSON.",
)
@click.pass_context
def command(
    ctx: click.Context,
    out: Path,
    algorithm: str | None,
    env: str | None,
    status: str | None,
    group: str | None,
    sort: str | None,
    reverse: bool,
    limit: int | None,
    json: bool,
) -> None:
    """List the runs in a directory with their status, steps, last and best evaluation and final evaluation."""
    if ctx.invoked_subcommand is not None:
        return
    filters = {
        "algorithm": algorithm,
        "env": env,
        "status": status,
        "group": f"{group}*" if group else None,
    }
    all_runs = [summary(path) for path in run_directories(out)]
    matching = [run for run in all_runs if _passes_filters(run, filters)]
    listed = sort_runs(matching, sort or "created", reverse != (sort is None))[:limit]
    if json:
        echo_json([run.plain() for run in listed])
        return
    if listed:
        echo(table(HEADER, map(_line, listed), optional=OPTIONAL_COLUMNS))
    else:
        noun = "such runs" if all_runs else "runs"
        echo(f"no {noun} in {out}/; 'rlplug run ALGORITHM ENV' makes one")
    for run in listed:
        if run.problem:
            warn(run.problem)


@command.command("rm")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="RUN…",
    shell_complete=completion.runs,
)
@runs_directory_option
@click.option(
    "--yes",
    is_flag=True,
    help="Do not ask.",
)
def _rm(names: tuple[str, ...], out: Path, yes: bool) -> None:
    """Delete run directories by path, name or pattern; their copies in MLflow stay."""
    paths = list(dict.fromkeys(path for name in names for path in _matches(name, out)))
    if not yes:
        click.confirm(f"delete {', '.join(map(str, paths))}?", abort=True)
    for path in paths:
        remove_run(path)
        echo(f"deleted {path}")


def _matches(name: str, out: Path) -> list[Path]:
    """Return the run of a path or name, or all runs with names that match a pattern such as `pix*`.

    A run with these characters in its name, `a[1]`, comes before the runs that the pattern matches.

    Raises:
        UsageError: there is none.
    """
    if not any(character in name for character in "*?["):
        return [find_run(name, out)]
    by_name = {str(path.relative_to(out)): path for path in run_directories(out)}
    if name in by_name:
        return [by_name[name]]
    paths = [path for run_name, path in by_name.items() if fnmatchcase(run_name, name)]
    if not paths:
        raise UsageError(f"no run in {out}/ matches {name} ('rlplug runs' lists them)")
    return paths


@command.command("reap")
@runs_directory_option
def _clean_up(out: Path) -> None:
    """Clean up after killed runs: delete half-written checkpoints, and end their runs in MLflow."""
    from rlplug_core.runs import Checkpoints

    killed = [
        Path(run.path) for run in map(summary, run_directories(out)) if run.status == "killed"
    ]
    for path in killed:
        dropped = Checkpoints(path / "checkpoints").drop_unfinished()
        echo(f"{path.name}: {dropped} half-written checkpoints deleted{_conclude_in_mlflow(path)}")
    echo(f"{len(killed)} killed runs in {out}/")


def sort_runs(runs: list[Summary], key: str, reverse: bool) -> list[Summary]:
    """Return the runs sorted by one of `KEYS`; runs without a value come last."""
    with_value = [run for run in runs if KEYS[key](run) is not None]
    return sorted(with_value, key=KEYS[key], reverse=reverse) + [
        run for run in runs if KEYS[key](run) is None
    ]


def final(run: Summary) -> float | None:
    """Return the mean return of the best checkpoint in the final evaluation."""
    return None if run.final_eval is None else float(run.final_eval["return_mean"])


def _passes_filters(run: Summary, filters: dict[str, str | None]) -> bool:
    values = run.plain()
    return all(
        pattern is None or fnmatchcase(str(values[name]), pattern)
        for name, pattern in filters.items()
    )


def _line(run: Summary) -> tuple[str, ...]:
    steps = f"{run.steps:,}" + (f"/{run.total_timesteps:,}" if run.total_timesteps else "")
    seed = "-" if run.seed is None else str(run.seed)
    final_scores = "-"
    if run.final_eval:
        final_scores = "/".join(number(run.final_eval.get(key)) for key in FINAL_KEYS)
    returns = (number(run.last), number(run.best), final_scores)
    return (
        run.name,
        run.status,
        file_name(run.algorithm or "-"),
        file_name(run.env or "-"),
        seed,
        steps,
        *returns,
    )


def _conclude_in_mlflow(path: Path) -> str:
    """End a killed run in MLflow, if MLflow has it; return a note."""
    from rlplug_cli.mlflow.mirror import Mirror, State

    if State.read(path) is None:
        return ""
    try:
        mirror = Mirror(path)
    except UsageError:  # another process is sending its records
        return ""
    try:
        mirror.send_rest()
    except Exception as error:  # noqa: BLE001 - after any MLflow error, the other runs are reaped
        return f"; MLflow cannot be reached ({plain(str(error), 100)})"
    finally:
        mirror.close()
    return "; its run in MLflow is ended"

"""`rlplug show RUN`: one page about one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from rlplug_cli.completion import runs
from rlplug_cli.notes import end_reason, export_advice, file_name, short_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.parameters import value_text
from rlplug_cli.render.live import duration, number
from rlplug_cli.render.tables import facts, table, terminal_width
from rlplug_cli.render.trace import Trace
from rlplug_cli.sweep.progress import RunProgress
from rlplug_core.config import is_directory, is_regular
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.runs import RunDirectory, Summary, find_run, shell_word, summary


@click.command("show")
@click.argument("run", shell_complete=runs)
@click.option("--json", is_flag=True, help="Write everything as JSON.")
def command(run: str, json: bool) -> None:
    """Show RUN, a path or a name in runs/: options, scores, curve, checkpoints, disk use and how to resume."""
    path = find_run(run)
    if RunDirectory(path).is_export:
        raise UsageError(export_advice(run))
    run_summary = summary(path)
    if run_summary.problem:
        raise RlplugError(run_summary.problem)
    config = RunDirectory(path).config
    options = config["options"]
    progress = RunProgress(path)
    progress.read_new_records()
    origins = config.get("origins", {})
    checkpoints = {folder.name: size(folder) for folder in _checkpoints(path)}
    if json:
        report = {**run_summary.plain(), "options": options, "origins": origins}
        report["evaluations"] = [[step, value] for step, value in progress.evaluations.items()]
        echo_json({**report, "checkpoints": checkpoints, "bytes": size(path)})
        return
    lines = [*_status(run_summary, path), *_scores(run_summary, progress.evaluations)]
    lines += [("checkpoint", f"{name}  {megabytes(used)}") for name, used in checkpoints.items()]
    lines += [("disk", f"{megabytes(size(path))} in {short_path(path)}")]
    lines += [("resume", _resume_command(run_summary, run))]
    echo(facts(lines, 12))
    rows = _changed_options(options, origins)
    if rows:
        echo(f"\n{table(('OPTION', 'VALUE', 'ORIGIN'), rows)}")


def _changed_options(
    options: Mapping[str, object],
    origins: Mapping[str, str],
) -> list[tuple[str, str, str]]:
    """Return the options that are not defaults, with value and origin."""
    return [
        (name, value_text(options[name]), origin)
        for name, origin in origins.items()
        if origin != "default" and name in options
    ]


def _status(run_summary: Summary, path: Path) -> Iterator[tuple[str, str]]:
    reason = end_reason(path)
    total = f" of {run_summary.total_timesteps:,}" if run_summary.total_timesteps else ""
    yield "run", run_summary.name
    yield "algorithm", file_name(run_summary.algorithm)
    yield "environment", f"{file_name(run_summary.env)}, seed {run_summary.seed}"
    yield "status", f"{run_summary.status}{f': {reason}' if reason else ''}"
    yield "steps", f"{run_summary.steps:,}{total} in {duration(run_summary.seconds)}"


def _scores(
    run_summary: Summary,
    evaluations: dict[int, float],
) -> Iterator[tuple[str, str]]:
    """Yield the curve of evaluations as bars, the best and the last one, and the final evaluation."""
    trace = Trace()
    for step, value in evaluations.items():
        trace.add(step, value)
    if trace.values:
        yield "evaluations", trace.draw((terminal_width() or 80) - 12)
        yield "", f"best {number(run_summary.best)}, last {number(run_summary.last)}"
    if run_summary.final_eval is not None:
        final = run_summary.final_eval
        last = number(final.get("last_return_mean"))
        best = number(final.get("return_mean"))
        yield "final", f"last weights {last}, best checkpoint {best}"


def _checkpoints(path: Path) -> list[Path]:
    """Return the checkpoint directories of a run."""
    folder = path / "checkpoints"
    return sorted(filter(is_directory, folder.glob("[!.]*"))) if is_directory(folder) else []


def size(directory: Path) -> int:
    """Return the bytes of the regular files in a directory."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if is_regular(path))


def megabytes(used_bytes: int) -> str:
    """Return a number of bytes in MB."""
    return f"{used_bytes / 1e6:,.1f} MB"


def _resume_command(run_summary: Summary, run: str) -> str:
    """Return the command that continues the run."""
    command = f"rlplug resume {shell_word(run)}"
    if run_summary.status == "running":
        return "the run is running"
    if run_summary.status == "finished":
        return (
            f"{command} --total-timesteps {2 * (run_summary.total_timesteps or run_summary.steps)}"
        )
    return command

"""Finds runs by name and summarizes them; the summary of an unreadable run has the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlplug_core.config.files import is_regular
from rlplug_core.errors import BadFile, RlplugError, UsageError, did_you_mean, plain
from rlplug_core.runs.directory import ENDINGS, RunDirectory, ending
from rlplug_core.runs.files import shell_word
from rlplug_core.runs.journal import MEASURED, Record, read, read_backwards
from rlplug_core.sharing.words import is_source

#: The default directory of runs.
OUT = Path("runs")
#: The most runs that a sentence names.
SHOWN = 3
#: Exceptions for a configuration or a journal of another version or from a damaged disk.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Summary:
    """One run; `problem` says why it cannot be read, and then the other values are empty.

    `best` is the mean return of the best evaluation, `last` that of the last one. `final_eval` is the final evaluation
    of the best checkpoint; its keys `last_…` are for the last weights. `extensions` are the totals that resumes gave
    the run, each larger than the one before, with whether schedules were stretched to it.
    """

    name: str
    path: str
    status: str
    algorithm: str = ""
    env: str = ""
    seed: int | None = None
    steps: int = 0
    total_timesteps: int | None = None
    best: float | None = None
    last: float | None = None
    final_eval: dict[str, Any] | None = None
    group: str = ""
    created: float = 0.0
    seconds: float = 0.0
    problem: str = ""
    extensions: tuple[tuple[int, bool], ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def find(run: Path | str, out: Path = OUT) -> Path:
    """Return the directory of a run or an export by its path, its name in `out`, or a source such as `hub:owner/name`.

    Raises:
        UsageError: no run has this name, or several have. RlplugError: a shared agent cannot be used.
    """
    if is_source(run):
        from rlplug_core.sharing.pull import pull  # with torch, which lists of runs do not need

        return pull(str(run))
    for path in (Path(run), out / run):
        if is_regular(path / "config.json") or (path / "policy.json").is_file():
            return path
    if len(matches := [path for path in directories(out) if path.name == str(run)]) == 1:
        return matches[0]  # a run of a sweep, by its own name
    for path in (Path(run), out / run):
        if os.path.isdir(path) and (runs := directories(path)):
            raise UsageError(f"{path} is not a run but holds {_describe_runs(path, runs)}")
    hint = did_you_mean(Path(run).name, [path.name for path in directories(out)])
    raise UsageError(f"no run at {run}{hint} ('rlplug runs' lists the runs in {out}/)")


def _describe_runs(path: Path, runs: Sequence[Path]) -> str:
    """Return the number and the names of the runs in a directory, and the commands to type instead."""
    names = [str(run.relative_to(path)) for run in runs]
    listed = ", ".join(names[:SHOWN])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"{len(names)} run{'s' * (len(names) > 1)}: {listed}{more}; name one of them, as in "
        f"{shell_word(path / names[0])} ('rlplug compare {shell_word(path)}' sums up all)"
    )


def directories(out: Path = OUT) -> list[Path]:
    """Return the run directories in `out` and in the sweeps there, oldest first."""
    if not out.is_dir():
        return []
    places = [out, *(path.parent for path in out.glob("*/sweep.json"))]
    paths = [path.parent for place in places for path in place.glob("*/config.json")]
    return sorted(paths, key=lambda path: (_write_time(path / "config.json"), path.name))


def _write_time(path: Path) -> int:
    """Return the time of the last write of a file in nanoseconds; 0 if it was deleted meanwhile."""
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return 0


def summary(path: Path) -> Summary:
    """Return the summary of a run, from its configuration and its journal."""
    try:
        return _summary(path)
    except BadFile as error:
        return Summary(_name(path), str(path), "unreadable", problem=str(error))
    except UNREADABLE as error:
        message = f"{type(error).__name__}: {plain(str(error))}; 'rlplug runs rm' deletes the run"
        return Summary(
            _name(path), str(path), "unreadable", problem=f"{path} cannot be read: {message}"
        )


def readable_summary(path: Path) -> Summary:
    """Return the summary of a run.

    Raises:
        RlplugError: the run cannot be read.
    """
    result = summary(path)
    if result.problem:
        raise RlplugError(result.problem)
    return result


def records(path: Path, *kinds: str) -> Iterator[Record]:
    """Yield the records of these kinds (default: all) of a run; none if it was killed before its first record."""
    return read(RunDirectory(path).journal_path, kinds=kinds)


def final_evaluation(path: Path) -> dict[str, object] | None:
    """Return the result of the last final evaluation of a run."""
    results = [record.data for record in records(path, "final_eval")]
    return results[-1] if results else None


def remove(path: Path) -> None:
    """Delete a run directory, or only the link if the path is a link to one.

    Raises:
        UsageError: it is being written.
    """
    try:
        running = RunDirectory(path).running()
    except BadFile:  # the file `lock` is not a regular file, so no process has locked it
        running = False
    if running:
        raise UsageError(f"run {path} is running; stop it before you remove it")
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def _summary(path: Path) -> Summary:
    directory = RunDirectory(path)
    config = directory.config
    first_total = int(config["options"].get("total_timesteps") or 0)
    journal = list(records(path, *ENDINGS, "evaluation", "final_eval"))
    starts = [record.data for record in journal if record.kind == "start"]
    evaluations = [record.data for record in journal if record.kind == "evaluation"]
    finals = [record.data for record in journal if record.kind == "final_eval"]
    steps, seconds = _progress(path)
    return Summary(
        name=_name(path),
        path=str(path),
        status="running" if directory.running() else ending(journal),
        algorithm=str(config["algorithm"]),
        env=str(config["env"]),
        seed=config["options"].get("seed"),
        steps=max([steps, *(record.step for record in journal if record.kind in MEASURED)]),
        total_timesteps=_total(config["options"], starts),
        best=_best(evaluations),
        last=evaluations[-1]["eval/return_mean"] if evaluations else None,
        final_eval=finals[-1] if finals else None,
        group=str(config["group"]),
        created=float(config["created"]),
        seconds=seconds,
        extensions=_larger_extensions(first_total, extensions(first_total, starts)),
    )


def _best(evaluations: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean return of the best checkpoint's evaluation; None without evaluations."""
    best = [data["eval/return_mean"] for data in evaluations if data.get("best")]
    return (
        best[-1] if best else max((data["eval/return_mean"] for data in evaluations), default=None)
    )


def _progress(path: Path) -> tuple[int, float]:
    """Return the env steps of a run and its seconds of training, over all its processes.

    Steps of earlier processes count only if they were measured: others, such as those before a failure, may be
    superseded.
    """
    steps = 0
    last_process = True
    for record in read_backwards(RunDirectory(path).journal_path):
        if last_process or record.kind in MEASURED:
            steps = max(steps, record.step)
        if "perf/wall_s" in record.data:
            return steps, float(record.data["perf/wall_s"])
        last_process = last_process and record.kind != "start"
    return steps, 0.0


def _total(
    options: Mapping[str, Any],
    starts: Iterable[Mapping[str, Any]],
) -> int | None:
    """Return the env step that a run trains to: its first total, or that of the latest extension."""
    goals = [start["limit"] for start in starts if "limit" in start]
    return int(goals[-1]) if goals else options.get("total_timesteps")


def extensions(
    first: int,
    starts: Iterable[Mapping[str, Any]],
) -> list[tuple[int, bool]]:
    """Return the totals that a run was extended to, each with whether its schedules were stretched to it.

    A process that continues to the same total is the same extension.

    Args:
        first: the first total of the run.
        starts: the `start` records of its processes.
    """
    totals: list[tuple[int, bool]] = []
    for start in starts:
        total, stretched = totals[-1] if totals else (first, False)
        limit = int(start.get("limit") or total)
        rescale = bool(start.get("rescale"))
        if limit != total:
            totals.append((limit, rescale))
        elif totals:
            totals[-1] = total, stretched or rescale
    return totals


def _larger_extensions(
    first: int,
    extended: Iterable[tuple[int, bool]],
) -> tuple[tuple[int, bool], ...]:
    """Return the extensions that are larger than all totals before them; only these can be repeated by commands."""
    larger: list[tuple[int, bool]] = []
    for total, stretched in extended:
        if total > max([first, *(earlier for earlier, _ in larger)]):
            larger.append((total, stretched))
    return tuple(larger)


def _name(path: Path) -> str:
    """Return the name of a run in lists: `SWEEP/RUN` for a run of a sweep."""
    return f"{path.parent.name}/{path.name}" if (path.parent / "sweep.json").exists() else path.name


def is_untrained(path: Path, step: int | None = None) -> bool:
    """Return whether a run had made no update at a step, by default at its end, according to its records."""
    later: int | None = None
    for record in read_backwards(RunDirectory(path).journal_path, ("metrics",)):
        if "perf/updates" not in record.data:
            continue
        updates = int(record.data["perf/updates"])
        if step is None or record.step < step:
            return not (updates if later is None else later)
        later = updates
    return later == 0

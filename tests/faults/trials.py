"""Runs that are killed or fail: `rlplug` in processes forked from one that has imported everything.

So a start takes a tenth of a second, and hundreds of trials take minutes. The code that runs is that of the command.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rlplug_cli.loggers import csv
from rlplug_cli.mlflow import episodes
from rlplug_core.loop.process_spawner import without_main
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import read

#: Modules that every process has imported when it starts.
PRELOAD = ("tests.faults.preload",)
#: Kinds of records that must equal those of an uninterrupted run.
MEASURED = ("metrics", "episodes", "evaluation", "final_eval")
#: Seconds that a trial may take on a busy machine.
PATIENCE = 600


@dataclass(frozen=True)
class Fault:
    """The effect of the n-th file operation below `runs/`: it raises the error with a number, or kills if it is 0."""

    operation: int
    error: int = 0
    #: The library of `faulty.c`; operations are counted into the file `count`, if it is not empty.
    library: str = ""
    count: str = ""


def start(words: Sequence[str], place: Path, fault: Fault | None = None, power: int | None = None) -> BaseProcess:
    """Start `rlplug` with `words` in the directory `place`; its output is appended to `output.txt` there.

    The power fails at the operation number `power`; -1 only counts operations into the file `operations`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    process = context.Process(target=_main, args=(list(words), str(place), fault, power))
    with without_main():
        process.start()
    return process


def wait(process: BaseProcess) -> int:
    """Wait for a process; return its exit code, or minus the number of the signal that killed it."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def run_to_end(words: Sequence[str], place: Path) -> None:
    """Run `rlplug` to its end, and assert that it succeeds."""
    code = wait(start(words, place))
    assert code == 0, (place / "output.txt").read_text()


def read_measurements(run: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """The measured records of a run, without durations."""
    records = read(run / "journal.jsonl", kinds=MEASURED)
    return [(r.kind, r.step, {k: v for k, v in r.data.items() if not k.startswith("perf/")}) for r in records]


def final_hashes(run: Path) -> Mapping[str, str]:
    """The hashes of the files of the final checkpoint, without the events, which contain times."""
    (manifest,) = run.glob("checkpoints/final-*/manifest.json")
    files: dict[str, str] = json.loads(manifest.read_bytes())["files"]
    return {name: value for name, value in files.items() if not name.startswith("events")}


def differences(run: Path, complete: Path) -> list[str]:
    """Return the differences between a run and an uninterrupted one."""
    found, expected = read_measurements(run), read_measurements(complete)
    wrong = ["bits"] if final_hashes(run) != final_hashes(complete) else []
    for kind in MEASURED:
        ours, theirs = ([record for record in records if record[0] == kind] for records in (found, expected))
        if ours != theirs:
            missing = sum(record not in ours for record in theirs)
            extra = len(ours) - len(theirs)
            wrong.append(f"{kind}: {missing} missing, {max(0, extra)} too many")
    return wrong + [f"{name} differs from the journal" for name in (csv.NAME, episodes.NAME) if is_stale(run, name)]


def is_stale(run: Path, name: str) -> bool:
    """Return whether a table of a run differs from the one that is made from its journal."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        shutil.copy(run / "journal.jsonl", copy)
        if name == episodes.NAME:
            episodes.write(copy)
        elif "csv" in json.loads((run / "config.json").read_bytes())["options"]["log"]:
            csv.Table(copy / name, copy / "journal.jsonl")
        tables = [path.read_bytes() if path.exists() else b"" for path in (run / name, copy / name)]
    return tables[0] != tables[1]


def is_finished(run: Path) -> bool:
    """Return whether a run is finished, and its hooks have written their tables."""
    return RunDirectory(run).status() == "finished" and not RunDirectory(run).has_pending_hooks()


def resume(run: Path, place: Path) -> str:
    """Resume a run that was killed or had a fault, unless it is finished; return the output if that fails."""
    if is_finished(run):
        return ""
    return "" if wait(start(["resume", run.name], place)) == 0 else (place / "output.txt").read_text()[-300:]


def _main(words: list[str], place: str, fault: Fault | None, power: int | None) -> None:
    os.chdir(place)
    output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    from rlplug_cli.__main__ import main

    if fault is not None and fault.library:
        ctypes.CDLL(fault.library).faulty_arm(fault.operation, fault.error, fault.count.encode())
    disk = None
    if power is not None:
        from tests.faults.power import Disk

        disk = Disk(power, Path(place, "operations"))
        disk.start()
    code = main(words)
    sys.stdout.flush()
    if disk is not None:
        disk.count.write_text(str(disk.operations))
    os._exit(code)

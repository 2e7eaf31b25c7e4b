"""Runs that are to be killed or to fail: `rlplug` in processes that are forked with everything imported.

A start takes a tenth of a second so, and hundreds of trials take minutes. What is run is what the command runs.
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

#: What every process has imported when it begins.
PRELOAD = ("tests.faults.preload",)
#: What a run measured, which must be there once and the same.
STORY = ("metrics", "episodes", "evaluation", "final_eval")
#: Seconds that a trial may take on a busy machine.
PATIENCE = 600


@dataclass(frozen=True)
class Fault:
    """What the n-th file operation below `runs/` does: raise an error by its number, or, where that is 0, kill."""

    operation: int
    error: int = 0
    #: The library of `faulty.c`; operations are counted into the file `count`, where one is named.
    library: str = ""
    count: str = ""


def started(words: Sequence[str], place: Path, fault: Fault | None = None, power: int | None = None) -> BaseProcess:
    """`rlplug` with `words` in the directory `place`; what it prints is added to `said.txt` there.

    At its operation number `power` the power fails; -1 only counts operations, into the file `operations`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    process = context.Process(target=_main, args=(list(words), str(place), fault, power))
    with without_main():
        process.start()
    return process


def ended(process: BaseProcess) -> int:
    """The exit code of a process that ends by itself or by its fault; below 0 the number of a signal."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def done(words: Sequence[str], place: Path) -> None:
    """Run `rlplug` to its end, which must be a good one."""
    code = ended(started(words, place))
    assert code == 0, (place / "said.txt").read_text()


def story(run: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """What a run measured, without what time has to do with it."""
    records = read(run / "journal.jsonl", kinds=STORY)
    return [(r.kind, r.step, {k: v for k, v in r.data.items() if not k.startswith("perf/")}) for r in records]


def bits(run: Path) -> Mapping[str, str]:
    """The hashes of what the final checkpoint holds, but for the events, which hold times."""
    (manifest,) = run.glob("checkpoints/final-*/manifest.json")
    files: dict[str, str] = json.loads(manifest.read_bytes())["files"]
    return {name: value for name, value in files.items() if not name.startswith("events")}


def differences(run: Path, whole: Path) -> list[str]:
    """Return what is wrong with a run that ought to be like one that was left alone."""
    found, expected = story(run), story(whole)
    wrong = ["bits"] if bits(run) != bits(whole) else []
    for kind in STORY:
        one, other = ([each for each in told if each[0] == kind] for told in (found, expected))
        if one != other:
            lost, twice = sum(each not in one for each in other), len(one) - len(other)
            wrong.append(f"{kind}: {lost} lost, {max(0, twice)} too many")
    return wrong + [f"{name} differs from the journal" for name in (csv.NAME, episodes.NAME) if stale(run, name)]


def stale(run: Path, name: str) -> bool:
    """Return whether a table of a run is not, byte for byte, the one that its journal gives."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        shutil.copy(run / "journal.jsonl", copy)
        if name == episodes.NAME:
            episodes.write(copy)
        elif "csv" in json.loads((run / "config.json").read_bytes())["options"]["log"]:
            csv.Table(copy / name, copy / "journal.jsonl")
        tables = [path.read_bytes() if path.exists() else b"" for path in (run / name, copy / name)]
    return tables[0] != tables[1]


def is_over(run: Path) -> bool:
    """Return whether a run is finished, and its hooks have written their tables."""
    return RunDirectory(run).status() == "finished" and not RunDirectory(run).has_pending_hooks()


def resumed(run: Path, place: Path) -> str:
    """Resume a run that was killed or met a fault, unless nothing is left to do; return what it said if it failed."""
    if is_over(run):
        return ""
    return "" if ended(started(["resume", run.name], place)) == 0 else (place / "said.txt").read_text()[-300:]


def _main(words: list[str], place: str, fault: Fault | None, power: int | None) -> None:
    os.chdir(place)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(said, stream)
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

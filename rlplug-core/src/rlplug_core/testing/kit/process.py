"""Runs a part of a check in a new process without any state of this one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlplug_core.loop.process_spawner import fork_server, without_main
from rlplug_core.loop.signals import restore_stop_signals
from rlplug_core.runs.checkpoint import read
from rlplug_core.testing.kit.examination import Examination
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.trees import Leaves, digest

#: The work of a process: it gets an order and returns JSON data.
Work = Callable[[Any], object]


@dataclass(frozen=True)
class ProcessResult:
    """The exit code of a process, its result if the code is 0, and its standard output and error."""

    code: int
    result: Any
    printed: str
    error: str


def in_fresh_process(work: Work, order: object) -> ProcessResult:
    """Call `work(order)` in a process that has loaded torch and no plugin.

    It is forked from a server that does nothing else, which takes a tenth of the time of a new interpreter.
    """
    with tempfile.TemporaryDirectory() as name:
        process = fork_server().Process(
            target=_run_and_report, args=(work, order, dict(os.environ), Path(name))
        )
        with without_main():
            process.start()
        process.join()
        files = {part: Path(name, part) for part in ("result", "printed", "error")}
        texts = {
            part: file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            for part, file in files.items()
        }
        code = process.exitcode or 0
        return ProcessResult(
            code,
            json.loads(texts["result"]) if code == 0 else None,
            texts["printed"],
            texts["error"],
        )


def _run_and_report(
    work: Work,
    order: object,
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    """Run in the process: copy the environment variables of the caller and write all results into files."""
    restore_stop_signals()
    os.environ.clear()
    os.environ.update(environment)
    for number, part in ((1, "printed"), (2, "error")):
        with (folder / part).open("wb") as file:
            os.dup2(file.fileno(), number)
    (folder / "result").write_text(json.dumps(work(order)), encoding="utf-8")


def summary(behavior: Leaves) -> dict[str, str]:
    """Return a hash for each kind of behavior."""
    kinds = sorted({path.partition("/")[0] for path in behavior})
    return {
        kind: digest({path: leaf for path, leaf in behavior.items() if path.startswith(kind)})
        for kind in kinds
    }


def resume_and_summarize(order: dict[str, Any]) -> dict[str, str]:
    """Resume `checkpoint`, saved after `from` vector steps, run until `to` and return a summary."""
    wrap = tuple(order["wrap"])
    examination = Examination(order["name"], order["options"], order["env"], {}, wrap=wrap)
    with examination.isolate():
        components, _ = read(Path(order["checkpoint"]))
        trial = Trial(examination.subject, seed=1).resume(components, order["from"])
        return summary(trial.run(order["to"]).behavior())

"""Does a part of a check in a fresh process, where nothing of this one has been."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlplug_core.loop.process_spawner import fork_server, without_main
from rlplug_core.loop.signals import mortal
from rlplug_core.runs.checkpoint import read
from rlplug_core.testing.kit.examination import Examination
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.trees import Leaves, digest

#: What a process does: it is given an order and returns what JSON can hold.
Work = Callable[[Any], Any]


@dataclass(frozen=True)
class Ended:
    """An exit code, what the process returned if that is 0, and its standard output and error."""

    code: int
    result: Any
    printed: str
    error: str


def in_fresh_process(work: Work, order: Any) -> Ended:
    """Call `work(order)` in a process that has loaded torch, and nothing of any plugin.

    It is forked from a server that has done nothing else, which takes a tenth of a new interpreter's time.
    """
    with tempfile.TemporaryDirectory() as name:
        process = fork_server().Process(
            target=_reported, args=(work, order, dict(os.environ), Path(name))
        )
        with without_main():
            process.start()
        process.join()
        told = {part: _text(Path(name, part)) for part in ("result", "printed", "error")}
        code = process.exitcode or 0
        return Ended(
            code, json.loads(told["result"]) if code == 0 else None, told["printed"], told["error"]
        )


def _reported(work: Work, order: Any, environment: Mapping[str, str], folder: Path) -> None:
    """In the process: take over the caller's environment variables, and write everything into files."""
    mortal()
    os.environ.clear()
    os.environ.update(environment)
    for number, part in ((1, "printed"), (2, "error")):
        with (folder / part).open("wb") as file:
            os.dup2(file.fileno(), number)
    (folder / "result").write_text(json.dumps(work(order)), encoding="utf-8")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def summary(behavior: Leaves) -> dict[str, str]:
    """A hash for each kind of behavior."""
    kinds = sorted({path.partition("/")[0] for path in behavior})
    return {
        kind: digest({path: leaf for path, leaf in behavior.items() if path.startswith(kind)})
        for kind in kinds
    }


def resumed(order: dict[str, Any]) -> dict[str, str]:
    """Resume `checkpoint`, made after `from` vector steps, run on to `to` and summarize it."""
    subject = Examination(order["name"], order["options"], order["env"], {}).algorithm
    with subject.apart():
        components, _ = read(Path(order["checkpoint"]))
        trial = (
            Trial(subject, subject.home_env(), seed=1)
            .resume(components, order["from"])
            .run(order["to"])
        )
        return summary(trial.behavior())

"""Another account replaces a directory of a run by a link at each file operation of the code that writes to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.config.files import replace
from rlplug_core.errors import BadFile, NotWritten
from rlplug_core.export.bundle import new_directory
from rlplug_core.plugins.hook_view import HookView
from rlplug_core.runs import sources
from rlplug_core.runs.checkpoint import Checkpoints
from rlplug_core.runs.watching import Showing

CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir")


class Swap:
    """Before the n-th file operation in or on a directory, moves it away and puts a link to a trap in its place."""

    def __init__(self) -> None:
        self.left = 0
        self.directory = Path()
        self.trap = Path()
        sys.addaudithook(self._record)

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.left or event not in CHANGES or not isinstance(arguments[0], str | Path):
            return
        if str(self.directory) in os.path.realpath(arguments[0]):
            self.left -= 1
            if not self.left:
                if self.directory.exists():
                    self.directory.rename(self.directory.with_name("moved"))
                self.directory.symlink_to(self.trap)


@pytest.fixture(scope="module")
def swap() -> Swap:
    return Swap()  # an audit hook cannot be removed


def film(run: Path, name: str) -> None:
    video = run / "videos" / f"one{name}"
    with Showing(video=video).films(10.0, run) as films:
        for shade in (0, 90):
            films.add(np.full((64, 64, 3), shade, np.uint8))


def save_image(run: Path) -> None:
    hook = HookView("one", run, run / "journal.jsonl", None, lambda kind, values: None)  # type: ignore[arg-type]
    hook.log_image("own/one", Path(__file__))


def save_source(run: Path) -> None:
    (run.parent / "own.py").write_text("class Own: ...")
    config = {"algorithm": "a2c", "env": f"{run.parent / 'own.py'}:Own", "options": {}}
    sources.copy_sources(run, config)


def export(run: Path) -> None:
    (run / "export").mkdir(exist_ok=True)
    with new_directory(run / "export", follow=False) as place:
        place.mkdir()
        replace(place / "policy.json", b"{}")


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "film": ("videos", lambda run: film(run, ".webp")),
    "mp4": ("videos", lambda run: film(run, ".mp4")),
    "checkpoint": ("checkpoints", lambda run: save_checkpoint(run)),
    "image": ("images", save_image),
    "source": ("sources", save_source),
    "export": ("export", export),
}


def save_checkpoint(run: Path) -> None:
    for step in (1, 2):
        Checkpoints(run / "checkpoints", keep=1).save("step", step, {"learner": {"weights": np.ones(3)}}, {})


@pytest.mark.parametrize("name", WRITERS)
def test_writers_follow_no_link_out_of_a_run(name: str, swap: Swap, tmp_path: Path) -> None:
    folder, write = WRITERS[name]
    swap.trap = tmp_path / "trap"
    swap.trap.mkdir()
    for operation in range(1, 100):
        run = tmp_path / str(operation)
        run.mkdir()
        swap.directory = run / folder
        swap.left = operation
        with suppress(BadFile, NotWritten, OSError):  # refusing is allowed
            write(run)
        reached = not swap.left
        swap.left = 0
        assert not list(swap.trap.iterdir()), f"before operation {operation}"
        if not reached:
            break
    assert 3 < operation < 99

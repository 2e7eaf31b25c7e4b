"""How much a reader has to open: PPO from `train` to a changed weight."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

from rlplug_algos.ppo import PPO
from rlplug_core import train
from rlplug_core.actor import Actor
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.optimiser import Adam


def callers(frame: FrameType | None) -> Iterator[Path]:
    """The files on the stack, as far as they are rlplug's."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("rlplug_"):
            yield Path(frame.f_code.co_filename)
        frame = frame.f_back


def watching(codes: set[CodeType], files: set[Path]) -> Callable[[FrameType, str, object], None]:
    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in codes:
            files.update(callers(frame))

    return watch


def test_ppo_changes_a_weight_within_eight_files_and_a_thousand_lines(tmp_path: Path) -> None:
    """The path is every file that is on the stack while the actor steps, a step is stored, or parameters change."""
    stations = {Actor.step.__code__, RolloutBuffer.add.__code__, Adam.step.__code__}
    files: set[Path] = set()
    options = {"total_steps": 64, "steps": 16, "epochs": 1, "batch": 16, "eval_episodes": 1, "verdict_episodes": 0}
    sys.setprofile(watching(stations, files))
    try:
        train(PPO, "rlplug_core.testing.envs:Chain", options, out=tmp_path, hooks=False)
    finally:
        sys.setprofile(None)
    names = sorted(path.name for path in files)
    assert {"run.py", "sync.py", "actor.py", "rollout.py", "ppo.py", "optimiser.py"} <= set(names)
    assert len(names) <= 8, names
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 1000, names

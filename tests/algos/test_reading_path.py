"""How far one reads from the loop to changed weights: one PPO update, traced call by call.

The path is every file of rlplug in which something runs between `loop` in `runners/sync.py` and the rule that changes
the weights. Not counted are the leaves below: files of plain values and arithmetic that never call back into the path,
so that their names say enough. Both halves of this sentence are checked against the trace.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

import rlplug_algos
import rlplug_core
from rlplug_core.run import train

CORE, ALGOS = Path(rlplug_core.__file__).parent, Path(rlplug_algos.__file__).parent

#: File to what it is good for without being read.
LEAVES = {
    "types.py": "the data that flows, and `tree_map`",
    "clock.py": "counts steps and updates",
    "products.py": "what `functional.linear` gives, sooner",
    "rules.py": "how a flat gradient changes flat parameters",
    "schedules.py": "a number as a function of progress",
    "seeds.py": "random numbers in blocks",
    "accelerate/forward.py": "the network as a function of numpy arrays",
    "nets/modules.py": "the network as a function of tensors",
    "nets/encoders.py": "its layers",
    "nets/heads/categorical.py": "outputs as a distribution: sample, log-probability, entropy",
    "nets/heads/masks.py": "illegal actions left out of it",
}
MAX_FILES, MAX_LINES = 8, 1000


def name_of(code: CodeType) -> str | None:
    """The file of some code as the packages name it, or None for what is not rlplug's or a test environment's."""
    path = Path(code.co_filename)
    if path.is_relative_to(ALGOS):
        return path.name
    if path.is_relative_to(CORE) and not path.is_relative_to(CORE / "testing"):
        return path.relative_to(CORE).as_posix()
    return None


class Trace:
    """Which files run, and which file calls which, until the weights have changed."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.calls: set[tuple[str, str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (name := name_of(frame.f_code)) is None:
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and name_of(caller.f_code) is None:
            caller = caller.f_back
        if caller is not None:
            self.calls.add((str(name_of(caller.f_code)), name, frame.f_code.co_qualname))


@pytest.fixture(scope="module")
def trace() -> Trace:
    """One rollout with truncated episodes, long enough that random numbers are drawn anew, and its update."""
    from rlplug_core.clock import Clock
    from rlplug_core.plan import Plan
    from rlplug_core.runners.build import build

    options = {"rows": 2, "steps": 300, "batch": 100, "epochs": 1, "kl_stop": 1.0, "anneal": False, "total_steps": 600}
    plan = Plan.make("ppo", "rlplug_core.testing.envs:Truncated", options)
    runner: Any = build(plan, Clock(600))
    before, found = runner.learner.optim.flat.clone(), Trace()
    sys.setprofile(found)
    try:
        runner.run(lambda: None)
    finally:
        sys.setprofile(None)
    assert not torch.equal(runner.learner.optim.flat, before)
    return found


def test_trace_reaches_from_the_loop_to_the_weights(trace: Trace) -> None:
    """It would prove nothing if it missed the ends or the middle."""
    functions = {(name, function) for _, name, function in trace.calls}
    assert {
        ("runners/sync.py", "loop"), ("actor.py", "Actor.step"), ("agents.py", "PolicyAgent.act"),
        ("buffers/rollout.py", "RolloutBuffer.add"), ("ppo.py", "PPO.update"), ("estimators.py", "gae"),
        ("batches.py", "Samples.minibatches"), ("ppo.py", "PPO.loss"), ("optimiser.py", "Optimiser.minimise"),
        ("rules.py", "Adam.step"),
    } <= functions  # fmt: skip


def test_ppo_reads_in_few_files_and_lines(trace: Trace) -> None:
    files = sorted(trace.files - LEAVES.keys() - {"events.py"})
    lines = {name: len(source(name).read_text(encoding="utf-8").splitlines()) for name in files}
    assert len(files) <= MAX_FILES, lines
    assert sum(lines.values()) <= MAX_LINES, lines


def test_leaves_are_leaves(trace: Trace) -> None:
    """A leaf calls leaves and the inner functions it was handed, nothing of the path by name."""
    assert LEAVES.keys() <= trace.files, "an entry that the path does not need"
    upwards = {
        call for call in trace.calls
        if call[0] in LEAVES and call[1] not in LEAVES and "<locals>" not in call[2]
    }  # fmt: skip
    assert upwards == set()


def test_metrics_are_kept_without_a_look_at_them(trace: Trace) -> None:
    """Of `events.py`, which is beside the path, only the list that results are put on takes part."""
    assert {function for _, name, function in trace.calls if name == "events.py"} == {"Meter.add"}


def test_from_train_to_the_weights_the_stack_is_short(tmp_path: Path) -> None:
    """Every file, but leaves, that is on the stack while the actor steps, a step is stored or the parameters change."""
    from rlplug_core.actor import Actor
    from rlplug_core.buffers.rollout import RolloutBuffer
    from rlplug_core.rules import Adam

    stations = {Actor.step.__code__, RolloutBuffer.add.__code__, Adam.step.__code__}
    found: set[str] = set()

    def watch(frame: FrameType | None, event: str, _: Any) -> None:
        if event == "call" and frame is not None and frame.f_code in stations:
            while frame is not None:
                found.update({name_of(frame.f_code)} - {None})  # type: ignore[arg-type]
                frame = frame.f_back

    options = {"total_steps": 64, "steps": 16, "epochs": 1, "batch": 16, "eval_episodes": 1, "verdict_episodes": 0}
    sys.setprofile(watch)
    try:
        train("ppo", "rlplug_core.testing.envs:Chain", options, out=tmp_path, hooks=False)
    finally:
        sys.setprofile(None)
    assert {"run.py", "runners/sync.py", "actor.py", "buffers/rollout.py", "ppo.py", "optimiser.py"} <= found
    found -= LEAVES.keys()
    assert len(found) <= MAX_FILES, found
    assert sum(len(source(name).read_text(encoding="utf-8").splitlines()) for name in found) <= MAX_LINES, found


def source(name: str) -> Path:
    return ALGOS / name if (ALGOS / name).exists() else CORE / name


@pytest.mark.parametrize("path", sorted(ALGOS.glob("*.py")), ids=lambda path: path.name)
def test_algorithm_file_fits_150_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 150

"""Count the files and functions of rlplug between the loop and the changed weights, and the switches between files.

    python bench/reading_path.py

Traces steps and updates of PPO, DQN and SAC on CartPole and Pendulum with `sys.setprofile`, after a first half that
fills buffers and caches. Every file that runs is counted, and the fast room as one file with one function. The columns
"as run" are normal runs; in the columns "autograd" torch's autograd computes all gradients. Depth is the longest stack,
with the fast room as one frame.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import rlplug_algos
import rlplug_core
from rlplug_core.clock import Clock
from rlplug_core.fast.losses import FastLosses
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan

ROOTS = {
    Path(package.__file__ or "").parent: package.__name__ for package in (rlplug_core, rlplug_algos)
}

#: The fast room counts as one file.
FAST = "rlplug_core/fast"
#: Env steps of the trace, and of the part before it.
STEPS = 128
#: Algorithm, environment and options of each run.
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "CartPole-v1", {"num_envs": 2, "n_steps": 64, "batch_size": 32, "n_epochs": 1}),
    "ppo, normalized and scheduled": (
        "ppo",
        "CartPole-v1",
        {
            "num_envs": 2,
            "n_steps": 64,
            "batch_size": 32,
            "n_epochs": 1,
            "normalize_reward": True,
            "net.normalize_obs": True,
            "clip_range": "linear(0.3,0.1)",
        },
    ),
    "dqn": ("dqn", "CartPole-v1", {"learning_starts": 64, "train_freq": 16, "buffer_size": 200}),
    "sac": (
        "sac",
        "Pendulum-v1",
        {"learning_starts": 64, "random_steps": 0, "train_freq": 16, "buffer_size": 200},
    ),
}


class Trace:
    """Records every called file and function of rlplug and the order of files."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, str]] = set()
        self.order: list[str] = []
        self.depth = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = file_of(frame) if event == "call" else None
        if name is not None:
            self.files.add(name)
            self.functions.add((name, "" if name == FAST else frame.f_code.co_qualname))
            self.order.append(name)
            self.depth = max(self.depth, depth(frame))

    @property
    def switches(self) -> int:
        """The number of calls into a file other than that of the previous call."""
        return sum(
            before != after for before, after in zip(self.order, self.order[1:], strict=False)
        )


def file_of(frame: FrameType) -> str | None:
    """Return the file of a frame within its package; None outside core and algos and for environments."""
    path = Path(frame.f_code.co_filename)
    for root, package in ROOTS.items():
        if path.is_relative_to(root) and not path.is_relative_to(root / "testing"):
            inner = path.relative_to(root)
            return FAST if inner.parts[0] == "fast" else f"{package}/{inner.as_posix()}"
    return None


def depth(frame: FrameType) -> int:
    """Return how many frames of rlplug are on the stack; those of the fast room count as one."""
    names: list[str] = []
    above: FrameType | None = frame
    while above is not None:
        name = file_of(above)
        if name is not None and not (name == FAST and names[-1:] == [FAST]):
            names.append(name)
        above = above.f_back
    return len(names)


def trace_call(run: Callable[[], object]) -> Trace:
    """Trace a call of `run`."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        run()
    finally:
        sys.setprofile(None)
    return trace


@contextmanager
def only_autograd() -> Iterator[None]:
    """Let autograd differentiate every loss."""

    def call(self: FastLosses, loss: Any, learner: Any, *args: Any, **named: Any) -> Any:
        return loss(learner, *args, **named)

    with patch.object(FastLosses, "call", call):
        yield


def trace_run(name: str) -> tuple[Trace, Trace]:
    """Return the trace of the second half of a run from the loop to the weights, and of one more update."""
    algorithm, env, options = RUNS[name]
    plan = Plan.make(algorithm, env, {"seed": 1, "total_timesteps": 2 * STEPS, **options})
    runner: Any = build(plan, Clock(2 * STEPS))

    def until_half() -> None:
        runner.clock.stop = runner.clock.steps >= STEPS

    runner.run(until_half)
    runner.clock.stop = False
    trace = trace_call(lambda: runner.run(lambda: None))
    batches: list[Any] = []
    while not batches:
        runner.actor.buffer.add(runner.actor.step())
        batches += runner.actor.buffer.batches(runner.clock)
    return trace, trace_call(lambda: runner.learner.update(batches[0], runner.clock))


def row(name: str) -> str:
    """Return a line of the table: files, functions, depth and switches, as run and by autograd."""
    counts: list[int] = []
    for way in (nullcontext, only_autograd):
        with way():
            trace, update = trace_run(name)
        counts += [len(trace.files), len(trace.functions), trace.depth, update.switches]
    return f"{name:<32}" + "".join(f"{count:>11}" for count in counts)


def main() -> None:
    print(f"{'':<32}{'as run':>11}{'':<33}{'autograd':>11}")
    print(f"{'run':<32}" + 2 * f"{'files':>11}{'functions':>11}{'depth':>11}{'switches':>11}")
    for name in RUNS:
        print(row(name))


if __name__ == "__main__":
    main()

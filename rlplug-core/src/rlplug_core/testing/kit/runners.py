"""The check of the runners that a learner names beside the synchronous one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlplug_core.clock import Clock
from rlplug_core.loop.async_inline import Inline
from rlplug_core.loop.plan import Plan
from rlplug_core.protocols import Env
from rlplug_core.seeds import Seeds, seed_globals
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.subject import ROWS, Subject
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.testing.kit.trial import Trial


@dataclass(frozen=True)
class HomePlan(Plan):
    """A plan that makes the home of a subject."""

    subject: Subject

    def make_env(self, num_envs: int) -> Env:
        return self.subject.home_env(num_envs)


def asynchronous(subject: Subject) -> None:
    """Under `async`, one worker learns what the synchronous loop learns, and two workers run."""
    if "async" not in subject.cls.runners:
        raise Skipped("it does not name async")
    env_seed, turns = Seeds(0).child("env").integer(), subject.horizon.turns
    steps = turns * ROWS
    alone = Trial(subject, subject.home_env(), env_seed=env_seed, total=steps).run(turns)
    worker = _inline(subject, steps, 1)
    if path := difference(leaves(alone.agent.weights()), leaves(worker.snapshot().agent().weights())):
        raise Failed(
            f"one asynchronous worker learns other weights than the synchronous loop ('{path}'); change parameters "
            "through the context's optimizer alone"
        )
    _inline(subject, steps, 2)


def _inline(subject: Subject, steps: int, workers: int) -> Inline:
    """The state of asynchronous workers, taking turns in this process, after a run."""
    values: dict[str, Any] = {"runner": "async", "inline": True, "workers": workers, "num_envs": ROWS, "seed": 0}
    values["total_timesteps"] = steps
    made = Plan.make(subject.name, subject.home, values)
    plan = HomePlan(made.algorithm, made.env, made.learner, made.options, subject.config, (), {}, subject)
    seed_globals(plan.seeds().child("globals"))
    runner = Inline(plan, Clock(steps))
    try:
        runner.run(lambda: None)
    finally:
        runner.close()
    return runner

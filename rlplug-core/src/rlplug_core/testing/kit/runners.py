"""Checks of the runners of a learner other than the synchronous one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from rlplug_core.clock import Clock
from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.loop.build import build
from rlplug_core.loop.events import Runner
from rlplug_core.loop.learner_data import gets_dataset
from rlplug_core.loop.plan import Plan
from rlplug_core.protocols import Env
from rlplug_core.seeds import Seeds, seed_globals
from rlplug_core.testing.kit.extra_inputs import dataset_of, with_signals
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import ROWS, Subject
from rlplug_core.testing.kit.trees import difference, leaves


@dataclass(frozen=True)
class KitPlan(Plan):
    """A plan of a run on the main environment of a subject."""

    subject: Subject

    def make_env(self, num_envs: int) -> Env:
        return with_signals(self.subject.make_main_env(num_envs), self.learner)

    def _learner_dataset(
        self,
        env: Env,
        rank: int,
        device: torch.device,
    ) -> LearnerDataset | None:
        return dataset_of(self.learner, env.spec, self.seeds(), rank)


def asynchronous(subject: Subject) -> None:
    """Under `async`, one worker learns the same as the synchronous loop, and two workers run."""
    if "async" not in subject.cls.runners:
        raise Skipped("it does not support async")
    if path := _different_weight(subject, {"runner": "async", "workers": 1}):
        raise Failed(
            f"one asynchronous worker learns other weights than the synchronous loop ('{path}'); change parameters "
            "only through the context's optimizer"
        )
    _run(subject, {"runner": "async", "workers": 2})


def decoupled(subject: Subject) -> None:
    """Under `decoupled`, an actor without lag gives the same weights as the synchronous loop, and two with lag run."""
    if "decoupled" not in subject.cls.runners:
        raise Skipped("it does not support decoupled")
    if path := _different_weight(
        subject, {"runner": "decoupled", "actors": 1, "max_lag": 0, "chunk_steps": 1}
    ):
        raise Failed(
            f"with a decoupled actor without lag it learns other weights than the synchronous loop "
            f"('{path}'); let the buffer copy all that it keeps of a step, and do not use the actor in it"
        )
    _run(subject, {"runner": "decoupled", "actors": 2})


def _different_weight(subject: Subject, values: Mapping[str, object]) -> str:
    """Return the path of a weight that differs from the synchronous loop, or ""."""
    turns = subject.horizon.turns
    seed = Seeds(0).child("env").integer()
    synchronous = Trial(subject, env_seed=seed, total=turns * subject.spec.num_envs).run(turns)
    agent = _run(subject, values).snapshot().agent()
    return difference(leaves(synchronous.agent.weights()), leaves(agent.weights()))


def _run(subject: Subject, values: Mapping[str, object]) -> Runner:
    """Run everything in this process and return the runner."""
    steps = subject.horizon.turns * ROWS * subject.spec.agents_per_world
    common = {"inline": True, "num_envs": ROWS, "seed": 0, "total_timesteps": steps}
    data = {"dataset": "the kit's"} if gets_dataset(subject.cls) else {}
    base = Plan.make(subject.name, subject.main_env, {**common, **data, **values})
    plan = KitPlan(
        algorithm=base.algorithm,
        env=base.env,
        learner=base.learner,
        options=base.options,
        config=subject.config,
        wrappings=(),
        schedules={},
        subject=subject,
        source=base.source,
        eval_source=base.eval_source,
    )
    seed_globals(plan.seeds().child("globals"))
    runner = build(plan, Clock(steps))
    try:
        runner.run(lambda: None)
    finally:
        runner.close()
    return runner

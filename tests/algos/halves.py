"""Learner processes that each get a part of one experience, for `test_learners.py`."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rlplug_core.algorithm import Algorithm
from rlplug_core.batches import Rollout, Transitions
from rlplug_core.buffers.rollout import RolloutBuffer
from rlplug_core.clock import Clock
from rlplug_core.learning.mean_gradient import MeanGradient
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.loop.actor import Actor
from rlplug_core.loop.plan import Plan
from rlplug_core.types import Step, tree_map

#: Rows and steps of the whole experience.
ROWS, STEPS = 4, 48
TOTAL = 10_000


def learn_share(rank: int, ranks: int, algorithm: str, env: str, options: dict[str, Any], file: str) -> list[Any]:
    """Return the weights after learning from the share `rank` of `ranks` of one experience."""
    torch.set_num_threads(1)
    plan = Plan.make(algorithm, env, {"num_envs": ROWS, "total_timesteps": TOTAL, "runner": "sync", **options})
    mean = MeanGradient(rank, ranks, torch.device("cpu"), 60.0)
    if ranks > 1:
        mean.join(Path(file))
    learner = plan.make_learner(
        plan.make_env(ROWS).spec, partial(Optimizer, mean=mean) if ranks > 1 else Optimizer, rank, ranks
    )
    assert isinstance(learner, Algorithm)
    size = ROWS // ranks
    clock = Clock(TOTAL)
    buffer = learner.buffer()
    share = slice(rank * size, rank * size + size)
    for step in experience(plan, learner):
        buffer.add(part(step, share) if isinstance(buffer, RolloutBuffer) else step)
        for batch in buffer.batches(clock):
            learner.update(batch if isinstance(batch, Rollout) else split(batch, rank, ranks), clock)
            clock.updates += 1
    assert clock.updates >= 3
    return [optimizer.flat.numpy().copy() for optimizer in learner.optimizers]


def experience(plan: Plan, learner: Any) -> list[Step]:
    """Return steps of all rows, by an agent that does not learn."""
    actor = Actor(plan.make_env(ROWS), learner, learner.agent(0), learner.buffer(), Clock(TOTAL))
    actor.reset(5)
    return [part(actor.step(), slice(None)) for _ in range(STEPS)]


def part(step: Step, rows: slice) -> Step:
    """Copy some rows of a step."""
    names = [field.name for field in fields(step) if field.name not in ("ended", "next_obs")]
    taken = {name: tree_map(lambda array: array[rows].copy(), getattr(step, name)) for name in names}
    next_obs = tree_map(lambda array: array[rows].copy(), step.next_obs)
    return replace(step, **taken, next_obs=next_obs, ended=bool((taken["terminated"] | taken["truncated"]).any()))


def split(batch: Transitions, rank: int, ranks: int) -> Transitions:
    """Return the share of one learner in a batch that all replay buffers drew alike."""
    size = len(batch.reward) // ranks
    return batch.take(torch.arange(rank * size, rank * size + size))

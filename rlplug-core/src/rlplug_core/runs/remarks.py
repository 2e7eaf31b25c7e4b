"""Remarks on options that look like a mistake and are none: said once before a run, which then does what was asked."""

from __future__ import annotations

from collections.abc import Iterator

from rlplug_core.loop.env_timing import cores
from rlplug_core.loop.plan import Plan


def remarks(plan: Plan) -> Iterator[str]:
    """Sentences about options that have less, or other, effect than their values suggest."""
    yield from _batches(plan)
    yield from _processes(plan)


def _batches(plan: Plan) -> Iterator[str]:
    """A minibatch is at most the whole rollout."""
    values = plan.flat
    if not {"n_steps", "n_epochs", "batch_size"} <= values.keys():
        return
    rollout = values["n_steps"] * plan.options.num_envs
    if values["batch_size"] > rollout:
        yield (
            f"batch_size is {values['batch_size']:,}, and a rollout has {rollout:,} steps (n_steps times num_envs): "
            "each epoch is one minibatch of all of them"
        )


def _processes(plan: Plan) -> Iterator[str]:
    """Processes that step environments all the time want a core each."""
    counts = {"async": ("workers", plan.options.workers), "decoupled": ("actors", plan.options.actors)}
    usual = (
        ("learners", plan.options.learners) if plan.options.learners > 1 else ("env_workers", plan.options.env_workers)
    )
    name, count = counts.get(plan.runner, usual)
    if count > cores() and not plan.options.inline:
        yield f"{name} is {count}, and this machine has {cores()} cores: they will take turns, at no more speed"

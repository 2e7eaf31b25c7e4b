"""Remarks on options that look like a mistake and are none: said once before a run, which then does what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlplug_core.loop.env_timing import cores
from rlplug_core.loop.plan import Plan

#: Options of every run that only some runners look at.
RUNNERS = {
    "workers": ("async",),
    "actors": ("decoupled",),
    "max_lag": ("decoupled",),
    "chunk_steps": ("decoupled",),
    "cpus_per_actor": ("decoupled",),
    "inline": ("async", "decoupled"),
}


def remarks(plan: Plan, origins: Mapping[str, str]) -> Iterator[str]:
    """Sentences about options that have less, or other, effect than their values suggest.

    `origins` says of each option where its value is from, `preset` or whatever somebody chose it by.
    """
    given = {name for name, origin in origins.items() if origin not in ("preset", "default")}
    yield from _batches(plan)
    yield from _chunks(plan)
    yield from _processes(plan)
    yield from _without_effect(plan, given)
    if "env_workers" in given:
        yield from _idle(plan)


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


def _chunks(plan: Plan) -> Iterator[str]:
    """A chunk of a decoupled actor is counted, and learned from, as a whole."""
    o = plan.options
    if (
        plan.runner == "decoupled"
        and not o.inline
        and 10 * plan.chunk_steps * o.num_envs > o.total_timesteps
    ):
        yield (
            f"total_timesteps is {o.total_timesteps:,}, and a chunk of an actor has "
            f"{plan.chunk_steps * o.num_envs:,} env steps (chunk_steps times num_envs), which are learned from whole: "
            "the run ends up to a chunk later; a smaller --chunk-steps ends it sooner"
        )


def _processes(plan: Plan) -> Iterator[str]:
    """Processes that step environments all the time want a core each."""
    counts = {
        "async": ("workers", plan.options.workers),
        "decoupled": ("actors", plan.options.actors),
    }
    stepping = min(plan.options.env_workers, plan.options.num_envs)
    usual = (
        ("learners", plan.options.learners)
        if plan.options.learners > 1
        else ("env_workers", stepping)
    )
    name, count = counts.get(plan.runner, usual)
    if count > cores() and not plan.options.inline:
        yield f"{name} is {count}, and this machine has {cores()} cores: they will take turns, at no more speed"


def _without_effect(plan: Plan, given: set[str]) -> Iterator[str]:
    """An option of another runner changes nothing."""
    for name, runners in RUNNERS.items():
        if name in given and plan.runner not in runners:
            able = [runner for runner in runners if runner in plan.learner.runners]
            names = " or ".join(map(repr, runners))
            theirs = f"it is for the runner {names}, under which {plan.algorithm} does not run"
            way = f"use --runner {' or '.join(able)}" if able else theirs
            yield f"{name} has no effect under the runner '{plan.runner}'; {way}"


def _idle(plan: Plan) -> Iterator[str]:
    """A process that steps environments wants at least one."""
    o = plan.options
    if o.offline and o.env_workers > 1:
        yield "env_workers has no effect in an offline run, which steps no environment to learn"
    elif o.num_envs == 1 < o.env_workers:
        yield f"env_workers is {o.env_workers}, which has no effect with a single environment; use --num-envs too"
    elif o.env_workers > o.num_envs:
        yield f"env_workers is {o.env_workers}, and there are {o.num_envs} environments: each gets a process, no more"

"""Checks of buffers and updates: what is learned from, and what must not matter."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import torch
from torch import Tensor

from rlplug_core.errors import NonFinite
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Story
from rlplug_core.testing.kit.samples import Samples
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, Subject, short
from rlplug_core.testing.kit.termination import garbage_matters, learned, matters
from rlplug_core.testing.kit.trees import difference

_METRIC = re.compile(r"[a-z][a-z0-9_]*(/[a-z0-9_]+)+")
#: Groups of metrics that are the run's own.
_TAKEN = ("rollout", "eval", "perf")


def updates(subject: Subject) -> None:
    """On everything it accepts, it comes to learn."""
    if not subject.horizon.turns:
        raise Failed(
            f"no 3 updates on {short(subject.home)} within {BUDGET:,} env steps; examine it with smaller options "
            "(options={...} or --set NAME=VALUE)"
        )
    for name in subject.accepted[1:]:
        if short(name) != "Masked":  # a check of its own
            Trial(subject, subject.makers[name](4)).run_updates(1, BUDGET)


def metrics(subject: Subject) -> None:
    """Metrics are named `group/name` and are finite scalars without a graph."""
    trial = Trial(subject, subject.home_env()).run(subject.horizon.turns)
    for name in trial.updates.metrics[0]:
        if not _METRIC.fullmatch(name):
            raise Failed(
                f"a metric is named '{name}'; write lower-case group/name, such as loss/policy"
            )
        if name.partition("/")[0] in _TAKEN:
            raise Failed(f"metric '{name}': the groups {', '.join(_TAKEN)} are the run's own")
    for name in trial.updates.graphs:
        raise Failed(f"metric '{name}' drags its graph along; detach it")
    for row in trial.updates.metrics:
        for name, value in row.items():
            if isinstance(value, Tensor) and value.numel() != 1:
                raise Failed(f"metric '{name}' has shape {tuple(value.shape)}, it must be a scalar")
            if not math.isfinite(float(value)):
                raise Failed(f"metric '{name}' is {float(value)}")


def clock(subject: Subject) -> None:
    """The clock is read by the plugin, and advanced by actor and runner alone."""
    trial = Trial(subject, subject.home_env()).run(subject.horizon.turns)
    wanted = (trial.actor.counted, len(trial.updates.metrics), 1.0, False)
    found = (trial.clock.steps, trial.clock.updates, trial.clock.scale, trial.clock.stop)
    if found != wanted:
        raise Failed(
            f"(steps, updates, scale, stop) of the clock are {found} instead of {wanted}; only read it"
        )


def copies(subject: Subject) -> None:
    """The buffer copies what it keeps: arrays of the environment are overwritten two steps later."""
    kept, overwritten = (
        Trial(subject, Probe(subject.spec, Story(scribbles=scribbles))).run(subject.horizon.turns)
        for scribbles in (False, True)
    )
    if difference(kept.behavior(), overwritten.behavior()):
        raise Failed(
            "it learns from arrays that the environment has overwritten; the buffer must copy what it keeps"
        )


def weight_zero(subject: Subject) -> None:
    """The content of samples that are not transitions (`valid` False, weight 0) changes nothing in the learner."""
    changed = garbage_matters(subject, "truncated")
    if changed and garbage_matters(
        subject, "terminated"
    ):  # after one kind of end alone it is about that end
        raise Failed(
            f"'{changed}' depends on rows of weight 0; leave them out of losses, sums and statistics"
        )


def pauses(subject: Subject) -> None:
    """The content of an environment that is absent for a step within an episode changes nothing."""
    stories = (Story("truncated", pausing=True, garbage=series) for series in (0, 1))
    if changed := matters(subject, *stories):
        raise Failed(
            f"'{changed}' depends on a row that was absent for a step within an episode; pass it through: no reward, "
            "no discount, and what came before it led to what the row saw when it was next there"
        )


def weight_scale(subject: Subject) -> None:
    """Halving all weights halves the gradient: weights are importance weights, whose scale must not cancel."""
    whole, half = (_first_gradient(subject, scale) for scale in (1.0, 0.5))
    if not whole:
        raise Skipped("no gradients pass through the context's optimizer")
    size = float(torch.linalg.vector_norm(whole[0]))
    off = float(torch.linalg.vector_norm(half[0] - 0.5 * whole[0]))
    if off > 0.1 * size:
        raise Failed(
            "half the weights do not give half the gradient; use Batch.mean, which divides by the number of rows that "
            "count instead of the sum of their weights"
        )


def _first_gradient(subject: Subject, scale: float) -> list[Tensor]:
    """The first unclipped gradient, if there is any, with the weights of the first batch scaled."""
    samples = Samples(subject, Probe(subject.spec, Story()))
    return samples.gradients(samples.batches[0], scale)[:1]


def non_finite(subject: Subject) -> None:
    """Rewards that are NaN end a run in NonFinite, before weights are spoilt or the fault is covered up."""
    turns = subject.horizon.turns
    usual = Story("either")
    trial = Trial(subject, Probe(subject.spec, replace(usual, broken=1)))
    try:
        trial.run(2 * turns)
    except NonFinite:
        return
    if not difference(learned(subject, usual, 2 * turns), trial.learned()):
        raise Skipped("rewards have no part in what it learns")
    raise Failed(
        f"{len(trial.updates.metrics)} updates on rewards that are NaN raise nothing; minimize through the context's "
        "optimizer, which looks, or raise rlplug_core.NonFinite, and replace no NaN by a number"
    )

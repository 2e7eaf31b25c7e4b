"""Checks of buffers and updates: the data that an update uses, and the data that must not matter."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import torch
from torch import Tensor

from rlplug_core.errors import NonFinite
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Scenario
from rlplug_core.testing.kit.samples import Samples
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, Subject, short
from rlplug_core.testing.kit.termination import (
    affected_part,
    learner_state,
    part_affected_by_garbage,
)
from rlplug_core.testing.kit.trees import difference

_METRIC = re.compile(r"[a-z][a-z0-9_]*(/[a-z0-9_]+)+")
#: Groups of metrics that are reserved for the run.
_RESERVED = ("rollout", "eval", "perf")


def updates(subject: Subject) -> None:
    """It makes updates on every accepted environment."""
    if not subject.horizon.turns:
        raise Failed(
            f"no 3 updates on {short(subject.main_env)} within {BUDGET:,} env steps; test it with smaller options "
            "(options={...} or --set NAME=VALUE)"
        )
    for name in subject.accepted[1:]:
        if short(name) != "Masked":  # another check tests it
            Trial(subject, subject.makers[name](4)).run_updates(1, BUDGET)


def metrics(subject: Subject) -> None:
    """Metrics are named `group/name` and are finite scalars without a graph."""
    trial = Trial(subject).run(subject.horizon.turns)
    for name in trial.updates.metrics[0]:
        if not _METRIC.fullmatch(name):
            raise Failed(
                f"a metric is named '{name}'; write lower-case group/name, such as loss/policy"
            )
        if name.partition("/")[0] in _RESERVED:
            raise Failed(
                f"metric '{name}': the groups {', '.join(_RESERVED)} are reserved for the run"
            )
    for name in trial.updates.graphs:
        raise Failed(f"metric '{name}' still has its graph; detach it")
    for row in trial.updates.metrics:
        for name, value in row.items():
            if isinstance(value, Tensor) and value.numel() != 1:
                raise Failed(f"metric '{name}' has shape {tuple(value.shape)}, it must be a scalar")
            if not math.isfinite(float(value)):
                raise Failed(f"metric '{name}' is {float(value)}")


def clock(subject: Subject) -> None:
    """The plugin only reads the clock; actor and runner advance it."""
    trial = Trial(subject).run(subject.horizon.turns)
    expected = (trial.actor.valid_steps, len(trial.updates.metrics), 1.0, False)
    actual = (trial.clock.steps, trial.clock.updates, trial.clock.scale, trial.clock.stop)
    if actual != expected:
        raise Failed(
            f"(steps, updates, scale, stop) of the clock are {actual} instead of {expected}; only read it"
        )


def copies(subject: Subject) -> None:
    """The buffer copies all data: arrays of the environment are overwritten two steps later."""
    intact, overwritten = (
        Trial(subject, Probe(subject.spec, Scenario(scribbles=scribbles))).run(
            subject.horizon.turns
        )
        for scribbles in (False, True)
    )
    if difference(intact.behavior(), overwritten.behavior()):
        raise Failed(
            "it learns from arrays that the environment has overwritten; the buffer must copy its data"
        )


def weight_zero(subject: Subject) -> None:
    """The content of samples that are not transitions (`valid` False, weight 0) changes nothing in the learner."""
    changed = part_affected_by_garbage(subject, "truncated")
    # If rows affect the learner only after one kind of end, the end is the cause.
    if changed and part_affected_by_garbage(subject, "terminated"):
        raise Failed(
            f"'{changed}' depends on rows of weight 0; leave them out of losses, sums and statistics"
        )


def pauses(subject: Subject) -> None:
    """The content of a row that is absent for a step within an episode changes nothing."""
    scenarios = (Scenario("truncated", pauses=True, garbage=series) for series in (0, 1))
    if changed := affected_part(subject, *scenarios):
        raise Failed(
            f"'{changed}' depends on a row that was absent for a step within an episode; skip that step: no reward, "
            "no discount, and the successor of the step before it is the next observation of the row"
        )


def weight_scale(subject: Subject) -> None:
    """Half the weights give half the gradient of every optimizer: the scale of importance weights must not cancel."""
    gradients = []
    for scale in (1.0, 0.5):
        samples = Samples(subject, Probe(subject.spec, Scenario()))
        steps = samples.gradients(samples.batches[0], scale)
        # Of several gradients of an optimizer, the first counts.
        gradients.append({step.name: step.values for step in reversed(steps)})
    full, half = gradients
    if not full:
        raise Skipped("no gradients pass through the context's optimizer")
    for name, gradient in full.items():
        size = float(torch.linalg.vector_norm(gradient))
        error = float(torch.linalg.vector_norm(half[name] - 0.5 * gradient))
        if error > 0.1 * size:
            raise Failed(
                f"half the weights do not give half the gradient of the optimizer '{name}'; use Batch.mean, which "
                "divides by the number of rows with weight instead of the sum of weights"
            )


def non_finite(subject: Subject) -> None:
    """If rewards are NaN, the run ends with NonFinite: NaN must not reach the weights or be replaced by a number."""
    turns = subject.horizon.turns
    scenario = Scenario("either")
    trial = Trial(subject, Probe(subject.spec, replace(scenario, nan_from=1)))
    try:
        trial.run(2 * turns)
    except NonFinite:
        return
    if not difference(learner_state(subject, scenario, 2 * turns), trial.learner_state()):
        raise Skipped("rewards have no effect on its learning")
    raise Failed(
        f"{len(trial.updates.metrics)} updates on rewards that are NaN raise nothing; minimize through the context's "
        "optimizer, which checks, or raise rlplug_core.NonFinite, and do not replace NaN by a number"
    )

"""Checks of buffers and updates: what is learned from, and what must not matter."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rlplug_core.batches import Batch, Rollout
from rlplug_core.config.schedules import Schedule
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import UpdateRule
from rlplug_core.testing.kit.ends import garbage_matters, learned
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Story
from rlplug_core.testing.kit.subject import BUDGET, Subject, short
from rlplug_core.testing.kit.trees import difference
from rlplug_core.testing.kit.trial import Trial

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
            raise Failed(f"a metric is named '{name}'; write lower-case group/name, such as loss/policy")
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
        raise Failed(f"(steps, updates, scale, stop) of the clock are {found} instead of {wanted}; only read it")


def copies(subject: Subject) -> None:
    """The buffer copies what it keeps: arrays of the environment are overwritten two steps later."""
    kept, overwritten = (
        Trial(subject, Probe(subject.spec, Story(scribbles=scribbles))).run(subject.horizon.turns)
        for scribbles in (False, True)
    )
    if difference(kept.behavior(), overwritten.behavior()):
        raise Failed("it learns from arrays that the environment has overwritten; the buffer must copy what it keeps")


def weight_zero(subject: Subject) -> None:
    """The content of samples that are not transitions (`valid` False, weight 0) changes nothing in the learner."""
    changed = garbage_matters(subject, "truncated")
    if changed and garbage_matters(subject, "terminated"):  # after one kind of end alone it is about that end
        raise Failed(f"'{changed}' depends on rows of weight 0; leave them out of losses, sums and statistics")


def pauses(subject: Subject) -> None:
    """The content of an environment that is absent for a step within an episode changes nothing."""
    stories = (Story("truncated", pausing=True, garbage=series) for series in (0, 1))
    if changed := difference(*(learned(subject, story) for story in stories)):
        raise Failed(
            f"'{changed}' depends on a row that was absent for a step within an episode; pass it through: no reward, "
            "no discount, and what came before it led to what the row saw when it was next there"
        )


def weight_scale(subject: Subject) -> None:
    """Halving all weights halves the gradient: weights are importance weights, whose scale must not cancel."""
    whole, half = (_gradients(subject, scale) for scale in (1.0, 0.5))
    if not whole:
        raise Skipped("no gradients pass through the context's optimizer")
    size = float(torch.linalg.vector_norm(whole[0]))
    off = float(torch.linalg.vector_norm(half[0] - 0.5 * whole[0]))
    if off > 0.1 * size:
        raise Failed(
            "half the weights do not give half the gradient; use Batch.mean, which divides by the number of rows that "
            "count instead of the sum of their weights"
        )


class _Spy:
    """A rule that writes gradients down before another one uses them."""

    def __init__(self, rule: UpdateRule, seen: list[Tensor]) -> None:
        self.rule, self.seen = rule, seen

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return self.rule.start(parameters)

    def step(self, parameters: Tensor, gradient: Tensor, state: dict[str, Tensor], lr: float) -> None:
        self.seen.append(gradient.clone())
        self.rule.step(parameters, gradient, state, lr)


def _gradients(subject: Subject, scale: float) -> list[Tensor]:
    """The unclipped gradients of the first update, with the batch's weights scaled."""
    seen: list[Tensor] = []

    def spied(
        parameters: Iterable[nn.Parameter], /, *, name: str, rule: UpdateRule, learning_rate: Schedule | float,
        max_grad_norm: Schedule | float | None = None,
    ) -> Optimizer:  # fmt: skip
        return Optimizer(parameters, name=name, rule=_Spy(rule, seen), learning_rate=learning_rate)

    trial = Trial(subject, Probe(subject.spec, Story()), optimizer=spied)
    for _ in range(BUDGET):
        for lane, step in trial.actor.step():
            lane.buffer.add(step)
            for batch in lane.buffer.batches(trial.clock):
                lane.learner.update(_scaled(batch, scale), trial.clock)
                return seen
    raise Skipped("no batch comes of random observations")


def _scaled(batch: Any, scale: float) -> Any:
    """A copy of a batch whose weights are multiplied."""
    names = {field.name for field in dataclasses.fields(batch)} if dataclasses.is_dataclass(batch) else set()
    if "weight" not in names:
        raise Skipped("its batches carry no weight")
    anew: dict[str, Any] = {"share": None} if isinstance(batch, Batch) else {}
    if isinstance(batch, Rollout):
        anew = {"whole": False, "views": None}
    return dataclasses.replace(batch, weight=batch.weight * scale, **anew)

"""The first batches of a small run, learned from again and again with other weights; nothing is kept of it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlplug_core.batches import Batch, Rollout
from rlplug_core.config.schedules import Schedule
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import UpdateRule
from rlplug_core.testing.kit.outcome import Skipped
from rlplug_core.testing.kit.probe import Probe, keys
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, Subject
from rlplug_core.testing.kit.trees import leaves
from rlplug_core.types import Array, tree_map

#: Gradients of one update after which it is broken off: a long one has thousands.
ENOUGH = 64
#: The most batches that are looked at.
MOST = 16


class _Enough(BaseException):
    """Breaks an update off; no handler of a plugin may catch it."""


class _Spy:
    """A rule that writes gradients down and changes nothing, so that all of an update are of the same parameters."""

    def __init__(self, rule: UpdateRule, seen: list[Tensor]) -> None:
        self.rule = rule
        self.seen = seen

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return self.rule.start(parameters)

    def step(
        self, parameters: Tensor, gradient: Tensor, state: dict[str, Tensor], lr: float
    ) -> None:
        self.seen.append(gradient.clone())
        if len(self.seen) >= ENOUGH:
            gradient.zero_()
            raise _Enough


class Samples:
    """A learner before its first update in a probe, and its first batches: enough for every kind of step to be there.

    Raises:
        Skipped: there is no batch within the budget, or its samples have no weights.
    """

    def __init__(self, subject: Subject, probe: Probe, enough: int = 1) -> None:
        self.seen: list[Tensor] = []
        self.trial = Trial(subject, probe, optimizer=self._spied)
        self.learner = self.trial.learner
        self.probe = probe
        self.batches = list(islice(self._batches(enough), MOST))
        if not self.batches:
            raise Skipped("no batch comes of random observations")
        self.before = copy.deepcopy(self.learner.state_dict())

    def gradients(self, batch: object, factor: float | Array) -> list[Tensor]:
        """The unclipped gradients of an update, with the batch's weights times `factor`."""
        self.seen.clear()
        self.learner.load_state_dict(copy.deepcopy(self.before))
        with suppress(_Enough):
            self.learner.update(_weighted(batch, factor), self.trial.clock)
        return list(self.seen)

    def response(self, factor: Callable[[Array], Array]) -> Array:
        """The gradients of updates with all batches in one array; `factor` gives their weights, from their places.

        Without gradients, how much updates change each number of the learner's state.
        """
        found = [
            self._response(batch, factor(places))
            for batch, places in zip(self.batches, self.places, strict=True)
        ]
        return np.concatenate(found)

    @cached_property
    def places(self) -> list[Array]:
        """For each batch row, episode and step of its samples, [*weight.shape, 3]; -1 for samples without weight.

        Raises:
            Skipped: observations do not say where they were seen.
        """
        return [self._places(batch) for batch in self.batches]

    def _response(self, batch: object, factor: Array) -> Array:
        if found := self.gradients(batch, factor):
            return torch.cat([gradient.double().cpu() for gradient in found]).numpy()
        before = leaves(self.before)
        after = leaves(self.learner.state_dict())
        moved = [
            np.ravel(np.asarray(after[path], np.float64) - before[path])
            for path in _numbers(before, after)
        ]
        return np.concatenate([np.zeros(1), *moved])

    def _places(self, batch: Any) -> Array:
        weight = np.asarray(batch.weight)
        obs = getattr(batch, "obs", None)
        if obs is None:
            raise Skipped("its batches carry no observations")
        rows = tree_map(lambda leaf: np.asarray(leaf)[_steps(leaf, weight)], obs)
        flat = tree_map(lambda leaf: leaf.reshape(weight.size, *leaf.shape[weight.ndim :]), rows)
        known = self.probe.places
        found = [known.get(key, (-1, -1, -1)) for key in keys(flat, weight.size)]
        if any(
            place[0] < 0 and there > 0 for place, there in zip(found, weight.ravel(), strict=True)
        ):
            raise Skipped("its batches hold other observations than it was shown")
        return np.array(found).reshape(*weight.shape, 3)

    def _batches(self, enough: int) -> Iterator[object]:
        """Copies of batches, until there are so many samples; from four times as many steps as the first one took."""
        count = 0
        last = BUDGET
        for turn in range(BUDGET):
            step = self.trial.actor.step()
            self.trial.actor.buffer.add(step)
            for batch in self.trial.actor.buffer.batches(self.trial.clock):
                last = min(last, 4 * (turn + 1))
                count += _weight(batch).size
                yield copy.deepcopy(batch)
            if count >= enough or turn >= last:
                return

    def _spied(
        self,
        parameters: Iterable[nn.Parameter],
        /,
        *,
        name: str,
        rule: UpdateRule,
        learning_rate: Schedule | float,
        max_grad_norm: Schedule | float | None = None,
    ) -> Optimizer:
        return Optimizer(
            parameters, name=name, rule=_Spy(rule, self.seen), learning_rate=learning_rate
        )


def _weight(batch: object) -> Array:
    names = (
        {field.name for field in dataclasses.fields(batch)}
        if dataclasses.is_dataclass(batch)
        else set()
    )
    if "weight" not in names:
        raise Skipped("its batches carry no weight")
    return np.asarray(getattr(batch, "weight"))  # noqa: B009  # which is checked above, and unknown to types


def _steps(leaf: Any, weight: Array) -> slice:
    """The steps of a rollout's observations, which have one more than its weights."""
    return slice(len(weight)) if len(leaf) > len(weight) else slice(None)


def _numbers(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The paths of what may be compared as numbers."""
    kept = [
        path
        for path in before.keys() & after.keys()
        if np.shape(before[path]) == np.shape(after[path])
    ]
    return sorted(path for path in kept if np.asarray(after[path]).dtype.kind == "f")


def _weighted(batch: Any, factor: float | Array) -> object:
    """A copy of a batch whose weights are multiplied."""
    weight = batch.weight * (factor if isinstance(factor, float) else _like(batch.weight, factor))
    anew: dict[str, object] = {"share": None} if isinstance(batch, Batch) else {}
    if isinstance(batch, Rollout):
        anew = {"whole": False, "views": None}
    names = {field.name for field in dataclasses.fields(batch) if field.init} - {*anew, "weight"}
    kept = {name: copy.deepcopy(getattr(batch, name)) for name in names}
    return dataclasses.replace(batch, weight=weight, **kept, **anew)


def _like(weight: Any, factor: Array) -> object:
    """The factor as an array or a tensor, as the weights are one."""
    return (
        torch.as_tensor(factor, dtype=weight.dtype)
        if isinstance(weight, Tensor)
        else factor.astype(weight.dtype)
    )

"""The first batches of a small run, used for many updates with different weights, each from the same state."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

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

#: Number of gradients after which an update is stopped; a long one has thousands.
ENOUGH = 64
#: Maximum number of batches.
MOST = 16


class _EnoughSamples(BaseException):
    """Stops an update; a BaseException, so that handlers of a plugin do not catch it."""


class Gradient(NamedTuple):
    """An unclipped gradient of one optimizer.

    Attributes:
        name: the optimizer's name.
        values: [P] for its P parameters.
    """

    name: str
    values: Tensor


class _Spy:
    """An update rule that records gradients and changes nothing, so all gradients belong to the same parameters."""

    def __init__(
        self,
        name: str,
        rule: UpdateRule,
        recorded: list[Gradient],
    ) -> None:
        self.name = name
        self.rule = rule
        self.recorded = recorded

    def start(self, parameters: Tensor) -> dict[str, Tensor]:
        return self.rule.start(parameters)

    def step(
        self,
        parameters: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        lr: float,
    ) -> None:
        self.recorded.append(Gradient(self.name, gradient.clone()))
        if len(self.recorded) >= ENOUGH:
            gradient.zero_()
            raise _EnoughSamples


class Samples:
    """A learner before its first update in a probe, and its first batches, enough for every kind of step.

    Raises:
        Skipped: no batch comes within the budget, or its samples have no weights.
    """

    def __init__(
        self,
        subject: Subject,
        probe: Probe,
        enough: int = 1,
    ) -> None:
        self.recorded: list[Gradient] = []
        self.trial = Trial(subject, probe, optimizer=self._spy_optimizer)
        self.learner = self.trial.learner
        self.probe = probe
        self.batches = list(islice(self._batches(enough), MOST))
        if not self.batches:
            raise Skipped("random observations give no batch")
        self.before = copy.deepcopy(self.learner.state_dict())

    def gradients(
        self,
        batch: object,
        factor: float | Array,
    ) -> list[Gradient]:
        """Return the unclipped gradients of an update with the weights of the batch times `factor`.

        Transitions of a data set get the mean of the factors.
        """
        self.recorded.clear()
        self.learner.load_state_dict(copy.deepcopy(self.before))
        if self.trial.dataset is not None:
            self.trial.dataset.scale = float(np.mean(factor))
        with suppress(_EnoughSamples):
            self.learner.update(_scale_weights(batch, factor), self.trial.clock)
        return list(self.recorded)

    def response(self, factor: Callable[[Array], Array]) -> Array:
        """Return the gradients of updates with all batches in one array; `factor` maps places to weights.

        Without gradients, return the changes of all numbers in the state of the learner.
        """
        responses = [
            self._response(batch, factor(places))
            for batch, places in zip(self.batches, self.places, strict=True)
        ]
        return np.concatenate(responses)

    @cached_property
    def places(self) -> list[Array]:
        """Row, episode and step of the samples of each batch, [*weight.shape, 3]; -1 for samples without weight.

        Raises:
            Skipped: the observations are not those of the probe.
        """
        return [self._places(batch) for batch in self.batches]

    def _response(self, batch: object, factor: Array) -> Array:
        if gradients := self.gradients(batch, factor):
            return torch.cat([gradient.values.double().cpu() for gradient in gradients]).numpy()
        before = leaves(self.before)
        after = leaves(self.learner.state_dict())
        changes = [
            np.ravel(np.asarray(after[path], np.float64) - before[path])
            for path in _float_paths(before, after)
        ]
        return np.concatenate([np.zeros(1), *changes])

    def _places(self, batch: Any) -> Array:
        weight = np.asarray(batch.weight)
        obs = getattr(batch, "obs", None)
        if obs is None:
            raise Skipped("its batches have no observations")
        # A rollout has one more observation than weights.
        rows = tree_map(lambda leaf: np.asarray(leaf)[: len(weight)], obs)
        flat = tree_map(lambda leaf: leaf.reshape(weight.size, *leaf.shape[weight.ndim :]), rows)
        known = self.probe.places
        places = [known.get(key, (-1, -1, -1)) for key in keys(flat, weight.size)]
        if any(
            place[0] < 0 and value > 0 for place, value in zip(places, weight.ravel(), strict=True)
        ):
            raise Skipped("its batches have other observations than the environment")
        return np.array(places).reshape(*weight.shape, 3)

    def _batches(self, enough: int) -> Iterator[object]:
        """Yield copies of batches until there are enough samples, within four times the steps of the first batch."""
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

    def _spy_optimizer(
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
            parameters, name=name, rule=_Spy(name, rule, self.recorded), learning_rate=learning_rate
        )


def _weight(batch: object) -> Array:
    names = (
        {field.name for field in dataclasses.fields(batch)}
        if dataclasses.is_dataclass(batch)
        else set()
    )
    if "weight" not in names:
        raise Skipped("its batches have no weight")
    return np.asarray(getattr(batch, "weight"))  # noqa: B009  # checked above, and unknown to the type checker


def _float_paths(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the paths of leaves that can be compared as numbers."""
    same_shape = [
        path
        for path in before.keys() & after.keys()
        if np.shape(before[path]) == np.shape(after[path])
    ]
    return sorted(path for path in same_shape if np.asarray(after[path]).dtype.kind == "f")


def _scale_weights(batch: Any, factor: float | Array) -> object:
    """Return a copy of a batch with multiplied weights."""
    weight = batch.weight * (factor if isinstance(factor, float) else _like(batch.weight, factor))
    reset: dict[str, object] = {"share": None} if isinstance(batch, Batch) else {}
    if isinstance(batch, Rollout):
        reset = {"whole": False, "views": None}
    names = {field.name for field in dataclasses.fields(batch) if field.init} - {*reset, "weight"}
    copies = {name: copy.deepcopy(getattr(batch, name)) for name in names}
    return dataclasses.replace(batch, weight=weight, **copies, **reset)


def _like(weight: Any, factor: Array) -> object:
    """Return the factor as an array or a tensor, like the weights."""
    return (
        torch.as_tensor(factor, dtype=weight.dtype)
        if isinstance(weight, Tensor)
        else factor.astype(weight.dtype)
    )

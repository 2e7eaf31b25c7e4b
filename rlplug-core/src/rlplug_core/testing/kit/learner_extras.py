"""The check of extras that a learner writes for the steps that it trained on."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from rlplug_core.errors import PluginError
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Scenario, keys
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, Subject
from rlplug_core.types import Array, Result

#: Row, episode and step of a sample.
Place: TypeAlias = tuple[int, int, int]
#: Number of compared samples after which the check ends.
ENOUGH = 64


def extras(subject: Subject) -> None:
    """Extras that it writes in `Result.extras` come back in later batches of the same steps."""
    probe = Probe(subject.spec, Scenario("either"), placing=True)
    trial = Trial(subject, probe)
    written = WrittenExtras(probe)
    while trial.actor.valid_steps < BUDGET and written.compared < ENOUGH:
        trial.actor.buffer.add(trial.actor.step())
        for batch in trial.actor.buffer.batches(trial.clock):
            written.compare(batch)
            result = trial.learner.update(batch, trial.clock)
            written.record(batch, result)
            try:
                trial.actor.buffer.feedback(batch, result)
            except PluginError as error:
                raise Failed(str(error)) from error
            trial.clock.updates += 1
        if trial.clock.updates >= 3 and not written.names:
            raise Skipped("it writes no extras")
    if not written.compared:
        raise Failed(
            f"it writes extras {', '.join(sorted(written.names))}, and no later batch has one of their steps; use a "
            "replay buffer, or leave them out"
        )


class WrittenExtras:
    """The extras that a learner has written for the steps of a probe.

    Attributes:
        names: their names.
        compared: number of samples that came back.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.values: dict[tuple[str, Place], Array] = {}
        self.names: set[str] = set()
        self.compared = 0

    def record(self, batch: Any, result: Result) -> None:
        """Record the extras that an update returned for each sample; the last one of a step counts."""
        if not result.extras:
            return
        places = self._places(batch)
        for name, value in result.extras.items():
            self.names.add(name)
            if np.shape(value)[:1] != (len(places),):
                raise Failed(
                    f"extras['{name}'] has shape {tuple(value.shape)}, and the batch has {len(places)} rows; give one "
                    "entry for each"
                )
            for place, row in zip(places, np.asarray(value), strict=True):
                if place is not None:
                    self.values[name, place] = row.copy()

    def compare(self, batch: Any) -> None:
        """Compare the extras of a batch with the written ones.

        Raises:
            Failed: one is missing or differs.
        """
        if not self.names:
            return
        places = self._places(batch)
        for name in sorted(self.names):
            known = {
                row: self.values[name, place]
                for row, place in enumerate(places)
                if place is not None and (name, place) in self.values
            }
            if not known:
                continue
            if name not in getattr(batch, "extras", {}):
                raise Failed(
                    f"it writes extras['{name}'], and later batches do not have it; your own buffer must store "
                    "Result.extras in `feedback`"
                )
            returned = np.asarray(batch.extras[name])
            for row, value in known.items():
                if not np.allclose(returned[row], value, equal_nan=True):
                    raise Failed(
                        f"extras['{name}'] of a step is {returned[row]} in a later batch, and {value} was written; "
                        "`feedback` must store each row at its own step"
                    )
            self.compared += len(known)

    def _places(self, batch: Any) -> list[Place | None]:
        """Return the place of each sample, None if its observation is not one of the probe.

        Raises:
            Skipped: steps cannot be told apart by their observations.
        """
        known = self.probe.places
        if len(known) < (self.probe.turn + 1) * self.probe.num_envs:
            raise Skipped("several steps have the same observation")
        weight = np.asarray(getattr(batch, "weight", 0.0))
        obs = getattr(batch, "obs", None)
        if obs is None or weight.ndim != 1:
            raise Skipped("its batches have no observations [B, ...] with weights [B]")
        return [known.get(key) for key in keys(obs, len(weight))]

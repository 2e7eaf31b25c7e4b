"""Checks of algorithms that ask for signals of the environment, or for a data set."""

from __future__ import annotations

import numpy as np

from rlplug_core.learner_dataset import LearnerDataset
from rlplug_core.loop.info_columns import signals_of
from rlplug_core.seeds import Seeds
from rlplug_core.testing.kit.extra_inputs import Signaling
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Scenario
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves


def signals(subject: Subject) -> None:
    """The signals that it names are keys of info, and it learns from each of them."""
    names = signals_of(subject.cls)
    if not names:
        raise Skipped("it names no signals")
    if wrong := [name for name in names if not isinstance(name, str) or not name]:
        raise Failed(f"signals has {wrong[0]!r}, which is not a key of info; write strings")
    for name, default in names.items():
        if default is not None and not np.isfinite(np.asarray(default, np.float64)).all():
            raise Failed(f"the default of signals['{name}'] is not finite")
    scenario = Scenario("either")
    learned = []
    for series in (0, 0, 1):
        env = Signaling(Probe(subject.spec, scenario), names, series)
        trial = Trial(subject, env).run(scenario.steps_for(subject.horizon.turns))
        learned.append(trial.learner_state())
    first, same, changed = learned
    if path := difference(first, same):
        raise Failed(f"with the same signals it learns something else ('{path}')")
    if not difference(first, changed):
        raise Failed(
            f"it names {', '.join(names)} in signals, and updates do not depend on them; read them from the extras of "
            "its batches, or name none"
        )


def dataset(subject: Subject) -> None:
    """It learns from the data set that it asks for, loads its state without one, and saves the state of the batches."""
    use = getattr(subject.cls, "dataset_use", "replay")
    if use not in ("replay", "optional", "required"):
        raise Failed(f"dataset_use is {use!r}; write 'replay', 'optional' or 'required'")
    if use == "replay":
        raise Skipped("it does not ask for a data set")
    trial = Trial(subject)
    before = _dataset_state(trial)
    after = _dataset_state(trial.run(subject.horizon.turns))
    if not difference(before, after):
        raise Failed(
            "three updates draw nothing from self.dataset; call self.dataset.batch(size), or leave dataset_use out"
        )
    fresh = Trial(subject, seed=1)
    fresh.learner.load_state_dict(trial.learner.state_dict())
    if difference(after, _dataset_state(fresh)):
        raise Failed(
            "a learner with a loaded state draws other batches from its data set; put context.dataset.state_dict() "
            "into the learner's state_dict, and load it"
        )
    _loads_without(subject, trial)


def _dataset_state(trial: Trial) -> Leaves:
    """Return the state of the data set of a trial."""
    assert isinstance(trial.dataset, LearnerDataset)
    return leaves(trial.dataset.state_dict())


def _loads_without(subject: Subject, trial: Trial) -> None:
    """Load learned weights into a learner without a data set, as evaluations do."""
    try:
        subject.learner(trial.env.spec, Seeds(1)).load_state_dict(trial.learner.state_dict())
    except Exception as error:  # the plugin is foreign code and may raise anything
        raise Failed(
            "without a data set, as in an evaluation, it does not load its state: "
            f"{type(error).__name__}: {error}; self.dataset is None there"
        ) from error

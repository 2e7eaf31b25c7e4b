"""Checks of how episodes end: nothing comes after a termination, and a truncation ends nothing."""

from __future__ import annotations

from rlplug_core.errors import UsageError
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Probe, Story
from rlplug_core.testing.kit.subject import BUDGET, ROWS, Subject
from rlplug_core.testing.kit.trees import Leaves, difference
from rlplug_core.testing.kit.trial import Trial
from rlplug_core.types import Spec

#: Rows with which the newest steps are a large part of what a replay holds at its first batch.
MANY_ROWS = (256, 128, 64, 32)


def termination(subject: Subject) -> None:
    """What is seen after a termination changes nothing in the learner: its value is 0."""
    one, other = (_learned(subject, Story("terminated", finals=series)) for series in (0, 1))
    if changed := difference(one, other):
        raise Failed(f"'{changed}' depends on what was seen after a termination; bootstrap with 0 there")


def truncation(subject: Subject) -> None:
    """The value of the true successor of a truncated step is bootstrapped, by those who bootstrap at all."""
    if not bootstraps(subject):
        raise Skipped("it does not bootstrap: updates do not depend on what the newest step led to")
    one, other = (_learned(subject, Story("truncated", finals=series)) for series in (0, 1))
    if not difference(one, other):
        raise Failed(
            "what a truncated step led to changes nothing; a time limit is no termination: bootstrap with the value of "
            "the step's own next_obs, which is not what the next episode opens with"
        )


def bootstraps(subject: Subject) -> bool:
    """Whether the first update depends on what the newest steps led to, which is seen nowhere else."""
    return any(_looks_ahead(subject, rows) for rows in (ROWS, *MANY_ROWS))


def _looks_ahead(subject: Subject, rows: int) -> bool:
    spec = Spec(subject.spec.obs, subject.spec.action, rows, subject.spec.id)
    try:
        one = Trial(subject, Probe(spec, Story("never")))
        if not one.run_updates(1, BUDGET):
            return False  # it waits for the end of an episode
        other = Trial(subject, Probe(spec, Story("never", turning=one.turns))).run(one.turns)
    except UsageError:
        return False  # these are too many rows for its buffer
    return bool(difference(one.learned(), other.learned()))


def _learned(subject: Subject, story: Story) -> Leaves:
    return Trial(subject, Probe(subject.spec, story)).run(subject.horizon.turns).learned()

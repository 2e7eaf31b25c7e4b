"""Checks of how episodes end: nothing comes after a termination, and a truncation ends nothing."""

from __future__ import annotations

from rlplug_core.errors import UsageError
from rlplug_core.testing.kit.credit import later_matters
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import End, Probe, Story
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, ROWS, Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves
from rlplug_core.types import Spec

#: Rows with which the newest steps are a large part of what a replay holds at its first batch.
MANY_ROWS = (256, 128, 64, 32)
#: Updates that get the longer look.
LATER = (2, 3, 8)


def termination(subject: Subject) -> None:
    """Observations after a termination change nothing in the learner: their value is 0."""
    changed = matters(subject, *(Story("terminated", finals=series) for series in (0, 1)))
    if not changed and not garbage_matters(subject, "truncated"):
        changed = garbage_matters(subject, "terminated")
    if changed:
        raise Failed(
            f"'{changed}' depends on what was seen after a termination; bootstrap with 0 there"
        )


def truncation(subject: Subject) -> None:
    """The value of the true successor of a truncated step is bootstrapped, by those who bootstrap at all."""
    require_bootstrap(subject)
    if not _finals_matter(subject):
        raise Failed(
            "what a truncated step led to changes nothing; a time limit is no termination: bootstrap with the value of "
            "the step's own next_obs"
        )
    if garbage_matters(subject, "truncated") and not garbage_matters(subject, "terminated"):
        raise Failed(
            "a truncated step is bootstrapped with the value of what the next episode opens with; take that of the "
            "step's own next_obs"
        )


def successors(subject: Subject) -> None:
    """Who learns from what comes after a step learns from what a truncated one led to, on a longer look, too."""
    if subject.once("bootstraps", lambda: _bootstraps(subject)):
        raise Skipped("'truncation' has looked")
    if not (_later_matters(subject) or _newest_matters(subject)):
        raise Skipped("it does not bootstrap on a longer look either")
    if not _finals_matter(subject):
        raise Failed(
            "updates depend on what comes after a step, and what a truncated step led to changes nothing; bootstrap "
            "there with the value of the step's own next_obs, not of its obs"
        )


def require_bootstrap(subject: Subject) -> None:
    """Raise `Skipped` for a learner that does not bootstrap."""
    if not subject.once("bootstraps", lambda: _bootstraps(subject)):
        raise Skipped("it does not bootstrap: updates do not depend on what the newest step led to")


def _bootstraps(subject: Subject) -> bool:
    """Return whether the first update depends on the successors of the newest steps, which are seen nowhere else."""
    for rows in (ROWS, *MANY_ROWS):
        spec = Spec(subject.spec.obs, subject.spec.action, rows, subject.spec.id)
        try:
            one = Trial(subject, Probe(spec, Story("never")))
            if not one.run_updates(1, BUDGET):
                return False  # it waits for the end of an episode
            other = Trial(subject, Probe(spec, Story("never", turning=one.turns))).run(one.turns)
        except UsageError:
            continue  # too many rows for its buffer
        if difference(one.learned(), other.learned()):
            return True
    return False


def _later_matters(subject: Subject) -> bool:
    try:
        return later_matters(subject)
    except Skipped:  # single samples cannot be looked at
        return False


def _newest_matters(subject: Subject) -> bool:
    """Return whether a later update depends on the successors of its newest steps; values may begin at 0."""
    for number in LATER:
        one = Trial(subject, Probe(subject.spec, Story("never")))
        if not one.run_updates(number, BUDGET):
            return False
        other = Trial(subject, Probe(subject.spec, Story("never", turning=one.turns))).run(
            one.turns
        )
        if difference(one.learned(), other.learned()):
            return True
    return False


def _finals_matter(subject: Subject) -> bool:
    """Return whether the successors of truncated steps matter, also of those before the newest."""
    first = subject.horizon.first
    settled = first if first > Story.length else 0
    stories = (Story("truncated", finals=series, settled=settled) for series in (0, 1))
    one, other = (
        learned(subject, story, first if settled else subject.horizon.turns) for story in stories
    )
    return bool(difference(one, other))


def garbage_matters(subject: Subject, end: End) -> str:
    """The part of the learner that depends on rows that are absent for one step after each episode, if any does.

    Such a row holds no transition; its observation stands where the next one of the row would.
    """
    return matters(subject, *(Story(end, absent=True, garbage=series) for series in (0, 1)))


def matters(subject: Subject, one: Story, other: Story) -> str:
    """The part of the learner that depends on what two stories differ in, if any does.

    A learner may keep transitions, of weight 0 too. Where only its state differs, it goes on for as long again: if
    neither metrics nor what its agents act on differ then, it has kept them and learned nothing from them.
    """
    changed = difference(learned(subject, one), learned(subject, other))
    if not changed:
        return ""
    turns = one.lasting(2 * subject.horizon.turns)
    return changed if difference(_acted(subject, one, turns), _acted(subject, other, turns)) else ""


def _acted(subject: Subject, story: Story, turns: int) -> Leaves:
    """The metrics of a run, and what its agents act on in the end."""

    def run() -> Leaves:
        trial = Trial(subject, Probe(subject.spec, story)).run(turns)
        return leaves({"metrics": trial.updates.metrics, "weights": trial.agent.weights()})

    return subject.once(("acted", story, turns), run)


def learned(subject: Subject, story: Story, turns: int = 0) -> Leaves:
    """The learner's state after so many vector steps of a story; without a number, as many as for three updates.

    Rows that are absent at times get more of them: a replay counts what it is given.
    """
    turns = turns or story.lasting(subject.horizon.turns)
    run = lambda: Trial(subject, Probe(subject.spec, story)).run(turns).learned()  # noqa: E731
    return subject.once((story, turns), run)

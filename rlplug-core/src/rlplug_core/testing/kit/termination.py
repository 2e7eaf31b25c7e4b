"""Checks of ends of episodes: the value after a termination is 0, after a truncation it is bootstrapped."""

from __future__ import annotations

from rlplug_core.errors import UsageError
from rlplug_core.testing.kit.credit import depends_on_later_steps
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import End, Probe, Scenario
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import BUDGET, ROWS, Subject
from rlplug_core.testing.kit.trees import Leaves, difference, leaves
from rlplug_core.types import Spec

#: Numbers of rows that make the newest steps a large part of a replay buffer at its first batch.
MANY_ROWS = (256, 128, 64, 32)
#: Later updates that are tested.
LATER = (2, 3, 8)
#: Factors of the usual steps before successors count as ignored: values that start at 0 take time to differ.
PATIENCE = (1, 4, 16)


def termination(subject: Subject) -> None:
    """Observations after a termination change nothing in the learner: their value is 0."""
    changed = affected_part(subject, *(Scenario("terminated", finals=series) for series in (0, 1)))
    if not changed and not part_affected_by_garbage(subject, "truncated"):
        changed = part_affected_by_garbage(subject, "terminated")
    if changed:
        raise Failed(
            f"'{changed}' depends on observations after a termination; bootstrap with 0 there"
        )


def truncation(subject: Subject) -> None:
    """An algorithm that bootstraps uses the value of the true successor of a truncated step."""
    require_bootstrap(subject)
    if not _depends_on_finals(subject):
        raise Failed(
            "the successor of a truncated step changes nothing; a time limit is not a termination: bootstrap with the "
            "value of the step's own next_obs"
        )
    if part_affected_by_garbage(subject, "truncated") and not part_affected_by_garbage(
        subject, "terminated"
    ):
        raise Failed(
            "a truncated step is bootstrapped with the value of the first observation of the next episode; use the "
            "value of the step's own next_obs"
        )


def successors(subject: Subject) -> None:
    """An algorithm that learns from successors, also in later updates, learns from those of truncated steps."""
    if subject.once("bootstraps", lambda: _bootstraps(subject)):
        raise Skipped("'truncation' tests it")
    if not (_depends_on_later_steps(subject) or _later_update_depends_on_newest(subject)):
        raise Skipped("it does not bootstrap in later updates either")
    if not _depends_on_finals(subject):
        raise Failed(
            "updates depend on successors of steps, but successors of truncated steps change nothing; bootstrap "
            "there with the value of the step's own next_obs, not of its obs"
        )


def require_bootstrap(subject: Subject) -> None:
    """Raise `Skipped` for a learner that does not bootstrap."""
    if not subject.once("bootstraps", lambda: _bootstraps(subject)):
        raise Skipped(
            "it does not bootstrap: updates do not depend on the successor of the newest step"
        )


def _bootstraps(subject: Subject) -> bool:
    """Return whether the first update depends on the successors of the newest steps, which nothing else contains."""
    for rows in (ROWS, *MANY_ROWS):
        main_spec = subject.spec
        spec = Spec(main_spec.obs, main_spec.action, rows, main_spec.id, goals=main_spec.goals)
        try:
            depends = _depends_on_newest(subject, spec, 1)
        except UsageError:
            continue  # too many rows for its buffer
        if depends is not False:
            return bool(depends)
    return False


def _depends_on_newest(
    subject: Subject,
    spec: Spec,
    number: int,
) -> bool | None:
    """Return whether update `number` depends on the successors of its newest steps; None without this update.

    An update that waits for the end of an episode does not come, because the episodes are endless.
    """
    base = Trial(subject, Probe(spec, Scenario("never")))
    if not base.run_updates(number, BUDGET):
        return None
    scenario = Scenario("never", other_obs_from=base.turns)
    changed = Trial(subject, Probe(spec, scenario)).run(base.turns)
    return bool(difference(base.learner_state(), changed.learner_state()))


def _depends_on_later_steps(subject: Subject) -> bool:
    try:
        return depends_on_later_steps(subject)
    except (Skipped, Failed):  # single samples cannot be measured
        return False


def _later_update_depends_on_newest(subject: Subject) -> bool:
    """Return whether a later update depends on the successors of its newest steps; values may start at 0."""
    for number in LATER:
        depends = _depends_on_newest(subject, subject.spec, number)
        if depends is not False:
            return bool(depends)
    return False


def _depends_on_finals(subject: Subject) -> bool:
    """Return whether the learner depends on successors of truncated steps, also before the newest step."""
    first = subject.horizon.first
    # More updates within a window would also learn from its steps while they are the newest ones.
    one_update_each = subject.horizon.turns >= 3 * first
    for factor in PATIENCE if one_update_each else PATIENCE[:1]:
        end = factor * first if first > Scenario.length else 0
        turns = end or factor * subject.horizon.turns
        start = end - first if end else 0
        base, changed = (
            learner_state(
                subject,
                Scenario("truncated", finals=series, finals_after=start, finals_before=end),
                turns,
            )
            for series in (0, 1)
        )
        if difference(base, changed):
            return True
    return False


def part_affected_by_garbage(subject: Subject, end: End) -> str:
    """Return the part of the learner that depends on rows that are absent for one step after each episode, or "".

    Such a row is not a transition; its observation is in the place of the row's next one.
    """
    return affected_part(
        subject, *(Scenario(end, absent=True, garbage=series) for series in (0, 1))
    )


def affected_part(subject: Subject, base: Scenario, variant: Scenario) -> str:
    """Return the part of the learner that depends on the difference of two scenarios, or "".

    A learner may store transitions, also with weight 0. If only its state differs, the run continues for the same time
    again: if metrics and weights are then equal, it has stored them and learned nothing from them.
    """
    changed = difference(learner_state(subject, base), learner_state(subject, variant))
    if not changed:
        return ""
    turns = base.steps_for(2 * subject.horizon.turns)
    first, second = (_metrics_and_weights(subject, each, turns) for each in (base, variant))
    return changed if difference(first, second) else ""


def _metrics_and_weights(
    subject: Subject,
    scenario: Scenario,
    turns: int,
) -> Leaves:
    """Return the metrics of a run and its final acting weights."""

    def run() -> Leaves:
        trial = Trial(subject, Probe(subject.spec, scenario)).run(turns)
        return leaves({"metrics": trial.updates.metrics, "weights": trial.agent.weights()})

    return subject.once(("acted", scenario, turns), run)


def learner_state(
    subject: Subject,
    scenario: Scenario,
    turns: int = 0,
) -> Leaves:
    """Return the state of the learner after `turns` vector steps of a scenario; default: the steps of three updates.

    Scenarios with absent rows get more steps, because a replay buffer counts transitions.
    """
    turns = turns or scenario.steps_for(subject.horizon.turns)

    def run() -> Leaves:
        return Trial(subject, Probe(subject.spec, scenario)).run(turns).learner_state()

    return subject.once((scenario, turns), run)

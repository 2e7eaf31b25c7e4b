"""The conformance kit passes a right algorithm, and each wrong one fails only the checks made for it."""

from __future__ import annotations

import unittest
import warnings
from pathlib import Path

import numpy as np
import pytest

from rlplug_core.errors import UsageError
from rlplug_core.testing import Check, ProvisionalFailure, checks
from rlplug_core.testing.envs import Chain
from rlplug_core.testing.kit.algorithm_checks import RULES
from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.probe import Probe, Scenario
from tests.core import wraps, wrong_algorithms
from tests.core.testing import test_kit_close
from tests.tables import for_each

FILE = Path(wrong_algorithms.__file__)

#: Each wrong algorithm, and the check that fails.
WRONG = {
    "Reserved": "options", "NoDefault": "options", "WrongDefault": "options", "UnknownSearch": "options",
    "WideSearch": "options", "UnknownRunner": "runners",
    "RaisesAttributeError": "spaces", "UndeclaredActions": "spaces", "NoFeedback": "protocol",
    "NoExploreArgument": "protocol",
    "FloatActions": "actions", "ColumnActions": "actions", "FlatExtras": "actions", "IgnoresMasks": "masks",
    "NoBatches": "updates", "Ungrouped": "metrics", "ReservedMetric": "metrics", "InfiniteMetric": "metrics",
    "KeepsGraphs": "metrics",
    "ChangesClock": "clock", "LeavesThread": "leaks",
    "CountsAbsent": "weight-zero", "TrainsOnAbsentRows": "pauses", "KeepsReferences": "copies",
    "TerminatesTruncations": "truncation", "TerminatesMostTruncations": "truncation",
    "TruncatesTerminations": "termination",
    "Unseeded": "seeding", "IgnoresSeed": "seeding",
    "SharesGenerator": "agents", "SameRanks": "agents", "CopiesWeights": "agents", "CarriesMemoryOver": "memory",
    "CountsLoads": "save-load", "CountsRows": "save-load", "SetInState": "save-load",
    "LosesBatches": "resume",
    "DependsOnProcess": "fresh-process", "LearnsFromActs": "evaluation", "DependsOnRunner": "decoupled",
    "CopiesToAct": "tensors", "ActsInArrays": "tensors", "CopiesToStore": "tensors", "CopiesToLearn": "tensors",
    "LearnsFromArrays": "tensors",
}  # fmt: skip

#: Each algorithm with the wrong sign in environments of one kind, and the check that fails.
WRONG_SIGN = {
    "WrongSign": "learn-chain",
    "WrongSignInContinuous": "learn-continuous",
    "WrongSignWithMasks": "learn-masked",
    "WrongSignInOneState": "learn-truncated",
}
#: Algorithms that fail several checks.
SEVERAL = {
    "ReallocatesWeights": ["agents", "resume", "async"],
    "UnsavedCount": ["hidden-state", "resume"],
    "BootstrapsFromReset": ["episodes", "truncation"],
    "BootstrapsTerminations": ["episodes", "termination"],
    "OwnSteps": ["async", "non-finite"],
    "DividesByWeights": ["episodes", "rewards", "weight-scale"],
    "PlainMean": ["episodes", "rewards", "weight-scale"],
    "ChangingEvaluation": ["agents", "evaluation", "explore", "hidden-state"],
}


def checks_of(name: str, learn: bool = False) -> dict[str, Check]:
    return {check.name: check for check in checks(f"{FILE}:{name}", learn=learn)}


def failed_checks(name: str) -> list[str]:
    """Return the checks that fail or warn; only two cases start a process."""
    return [
        check.name
        for check in checks_of(name).values()
        if (check.name != "fresh-process" or WRONG.get(name) == "fresh-process") and check.outcome().broken
    ]


def test_compares_decoupled_actors_in_multi_agent_environments() -> None:
    """There are several rows per environment, and both runs take the same number of steps."""
    world = "rlplug_core.testing.multi_agent:Dilemma"
    by_name = {check.name: check for check in checks(f"{FILE}:Tiny", env=world)}
    assert by_name["decoupled"].outcome().status == "passed"


def test_right_algorithm_passes_all_checks() -> None:
    outcomes = {name: check.outcome() for name, check in checks_of("Tiny", learn=True).items()}
    skipped = {name for name, outcome in outcomes.items() if outcome.status == "skipped"}
    assert skipped == {
        "entry-point",
        "index",
        "presets",
        "import-light",
        "import-quiet",
        "memory",
        "signals",
        "views",
        "dataset",
        "extras",
        "export",
        "successors",
    }
    assert not {name: outcome for name, outcome in outcomes.items() if outcome.broken}


def test_right_memory_passes() -> None:
    assert checks_of("HasMemory")["memory"].outcome().status == "passed"
    with pytest.raises(Failed, match=r"'memory' in step \d+ depends on the recurrent state before the start"):
        checks_of("CarriesMemoryOver")["memory"]()


@for_each("name", [*WRONG, *SEVERAL])
def test_wrong_algorithm_fails_its_checks(name: str) -> None:
    try:
        by_name = checks_of(name)
        expected = SEVERAL.get(name) or [WRONG[name]]
        assert not [check for check in expected if not by_name[check].outcome().broken]
    finally:
        wrong_algorithms.LeavesThread.stop.set()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WRONG, *SEVERAL])
def test_wrong_algorithm_fails_no_other_check(name: str) -> None:
    try:
        assert sorted(failed_checks(name)) == sorted(SEVERAL.get(name) or [WRONG[name]])
    finally:
        wrong_algorithms.LeavesThread.stop.set()


@for_each("name", WRONG_SIGN)
def test_algorithm_with_wrong_sign_fails_its_learning_check(name: str) -> None:
    assert checks_of(name, learn=True)[WRONG_SIGN[name]].outcome().status == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_SIGN)
def test_algorithm_with_wrong_sign_passes_other_learning_checks(name: str) -> None:
    learning = [check for check in checks_of(name, learn=True).values() if check.level == "learn"]
    assert [check.name for check in learning if check.outcome().status == "failed"] == [WRONG_SIGN[name]]


@pytest.mark.parametrize("scenario", [Scenario(absent=True), Scenario(pauses=True)], ids=["absent", "pauses"])
def test_absent_rows_have_enough_steps(scenario: Scenario) -> None:
    """Otherwise a replay would make no update in the stories with absent rows."""
    for turns in (1, 2, 3, 7, 30):
        probe = Probe(Chain(5).spec, scenario)
        probe.reset(0)
        present = [probe.step(np.zeros(5, int)).valid for _ in range(scenario.steps_for(turns))]
        assert np.sum(present, axis=0).min() >= turns
        assert not np.all(present) or turns == 1


def test_checks_algorithm_inside_its_wrapper() -> None:
    """The wrapper refuses some environments of the kit; a fresh process wraps too."""
    assert "it accepts no environment" in checks_of("NeedsAge")["spaces"].outcome().message
    by_name = {check.name: check for check in checks(f"{FILE}:NeedsAge", wrap=[f"{wraps.__file__}:Aged"])}
    for name in ("spaces", "actions", "updates", "resume", "fresh-process", "truncation"):
        assert by_name[name].outcome().status == "passed", (name, by_name[name].outcome().message)


def test_zero_table_gets_time_to_bootstrap() -> None:
    """Its values are 0 at first, so the first successors of truncated steps change nothing."""
    assert checks_of("ZeroTable")["successors"].outcome().status == "passed"


def test_every_check_has_a_wrong_algorithm() -> None:
    other_files = {
        "entry-point",
        "index",
        "presets",
        "import-light",
        "import-quiet",
        "help",
        "learn-episodes",
        "signals",
        "views",
        "dataset",
        "extras",
        "export",
    }
    sly = {name for name, _ in test_kit_close.SLY.values()}
    several = {name for names in SEVERAL.values() for name in names}
    assert {rule.name for rule in RULES} == other_files | sly | several | {*WRONG.values(), *WRONG_SIGN.values()}


def test_every_check_has_a_summary() -> None:
    assert not [rule.name for rule in RULES if not rule.summary.endswith(".")]


def test_failing_check_raises_with_advice() -> None:
    with pytest.raises(Failed, match=r"Ungrouped, metrics: a metric is named 'loss'; write lower-case group/name"):
        checks_of("Ungrouped")["metrics"]()


def test_check_that_does_not_apply_skips() -> None:
    with pytest.raises(unittest.SkipTest, match="not installed as a plugin"):
        checks_of("Tiny")["entry-point"]()


def test_provisional_check_only_warns() -> None:
    check = checks_of("NoHelp")["help"]
    assert not check.provisional
    check.examination.contract = 1  # as its index says
    assert check.provisional
    with pytest.warns(ProvisionalFailure, match="no help for beta"):
        check()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks_of("NoHelp")["options"]()


def test_expected_failures_are_strict_and_need_a_reason() -> None:
    target = f"{FILE}:Ungrouped"
    by_name = {c.name: c for c in checks(target, expected_failures={"metrics": "an old name", "options": "a test"})}
    with pytest.raises(unittest.SkipTest, match="fails as expected: an old name"):
        by_name["metrics"]()
    with pytest.raises(Failed, match="it passes; take it out of expected_failures"):
        by_name["options"]()
    with pytest.raises(UsageError, match="'metrics' needs a reason"):
        checks(target, expected_failures={"metrics": " "})
    with pytest.raises(UsageError, match="no check 'metric'; did you mean 'metrics'"):
        checks(target, expected_failures={"metric": "a reason"})


def test_unknown_algorithms_and_options_raise() -> None:
    with pytest.raises(UsageError, match="no algorithm 'no-such-thing'"):
        checks("no-such-thing")
    with pytest.raises(UsageError, match="no option 'n_stepz'"):
        checks(f"{FILE}:Tiny", options={"n_stepz": 4})[0].outcome()

"""Subtly wrong algorithms fail the check made for them, and right ones of all kinds pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlplug_core.testing import checks
from tests.core import right_algorithms, sly_algorithms
from tests.tables import for_each

#: Each wrong algorithm, the check that fails, and words of its message.
SLY = {
    "AdvantagesAcrossEpisodes": ("episodes", "recursion"), "AdvantagesAcrossTruncations": ("episodes", "recursion"),
    "LateAdvantages": ("episodes", "next episode"), "EarlyAdvantages": ("episodes", "next episode"),
    "EarlyDeltas": ("episodes", "next episode"), "OwnValue": ("successors", "not of its obs"),
    "NStepLate": ("rewards", "the sample's own reward"),
    "NStepAcrossEpisodes": ("episodes", "cut sums over rewards"),
    "NStepAcrossTruncations": ("episodes", "cut sums over rewards"),
    "ResetSuccessors": ("episodes", "next_obs"), "ResetSuccessorsOfValidRows": ("truncation", "next_obs"),
    "WritesObs": ("inputs", "`act` of CenteringAgent writes into 'obs'"), "WritesFirst": ("inputs", "'is_first'"),
    "WritesRewards": ("inputs", "'reward'"),
    "CountsUpdates": ("hidden-state", "learner.count is"),
    "CountsActs": ("hidden-state", "agent.acts is"),
    "ReseedsNumpy": ("generators", "generator of numpy"), "ReseedsTorch": ("generators", "generator of torch"),
    "ReplacesNan": ("non-finite", "rewards that are NaN"), "SkipsNan": ("non-finite", "rewards that are NaN"),
    "SamplesInEvaluation": ("explore", "`act` ignores `explore`"),
    "ExploresInEvaluation": ("explore", "`act` ignores `explore`"),
}  # fmt: skip
#: Two that train; only learning tells them from right algorithms.
LEAKY = ("AdvantagesAcrossEpisodes", "NStepAcrossEpisodes")
RIGHT = (
    "ZeroTable", "Dyna", "KeepsRollouts", "WorldModel", "LearnsFromOldSteps", "Padded", "Ensemble", "NumpyOnly",
    "WholeReturns",
    "ScaledRewards", "TinyQ", "Tiny",
)  # fmt: skip


@for_each("name", SLY)
def test_sly_algorithm_fails_its_check(name: str) -> None:
    check_name, message = SLY[name]
    by_name = {check.name: check for check in checks(f"{Path(sly_algorithms.__file__)}:{name}")}
    outcome = by_name[check_name].outcome()
    assert outcome.broken, outcome
    assert message in outcome.message


@pytest.mark.parametrize("name", [LEAKY[0], *(pytest.param(name, marks=pytest.mark.slow) for name in LEAKY[1:])])
def test_algorithm_that_learns_from_next_episode_fails(name: str) -> None:
    by_name = {check.name: check for check in checks(f"{Path(sly_algorithms.__file__)}:{name}", learn=True)}
    assert "rewards of a row's next episode must not reach back" in by_name["learn-episodes"].outcome().message


#: One of each kind of data; the others are `slow`, and `test_kit` has `Tiny`.
NOT_SLOW = ("Dyna", "WorldModel", "LearnsFromOldSteps", "NumpyOnly", "WholeReturns", "TinyQ")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in NOT_SLOW else pytest.mark.slow) for name in RIGHT]
)
def test_right_algorithm_passes(name: str) -> None:
    kit_checks = checks(f"{Path(right_algorithms.__file__)}:{name}")
    outcomes = {check.name: check.outcome() for check in kit_checks if check.name != "fresh-process"}
    assert not {name: outcome for name, outcome in outcomes.items() if outcome.broken}

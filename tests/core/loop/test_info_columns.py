"""Every step has the signals of its learner, in every runner; without signals no info is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlplug_core.errors import BadEnv, PluginError, UsageError
from rlplug_core.loop.info_columns import InfoColumns
from rlplug_core.plugins.env_base import EnvBase
from rlplug_core.types import Spec
from tests.core.fakes import TINY, assert_same, make_runner, save_and_load
from tests.core.signals import (
    CHECKS_SIGNALS,
    CHECKS_SIGNALS_Q,
    CLASHES_WITH_EXTRAS,
    COSTLY,
    NEEDS_DANGER,
    NEEDS_PAIR,
    UNREAD_INFO,
)

CASES: dict[str, dict[str, Any]] = {
    "sync": {"algorithm": CHECKS_SIGNALS},
    "env-workers": {"algorithm": CHECKS_SIGNALS, "env_workers": 2},
    "async": {"algorithm": CHECKS_SIGNALS, "runner": "async", "workers": 2, "inline": True},
    "async-processes": {"algorithm": CHECKS_SIGNALS, "runner": "async", "workers": 2},
    "decoupled": {"algorithm": CHECKS_SIGNALS, "runner": "decoupled", "actors": 2, "inline": True},
    "decoupled-processes": {"algorithm": CHECKS_SIGNALS, "runner": "decoupled", "actors": 2},
    "replay": {"algorithm": CHECKS_SIGNALS_Q},
    "replay-decoupled": {"algorithm": CHECKS_SIGNALS_Q, "runner": "decoupled", "actors": 2, "inline": True},
}


@pytest.mark.parametrize("case", CASES)
def test_batches_have_the_signals_of_their_steps(case: str) -> None:
    """The buffer and `learn` of the learner compare each signal with its step, and raise if one differs."""
    runner = make_runner(env=COSTLY, **CASES[case])
    try:
        runner.run(lambda: None)
        assert runner.clock.updates > 5
    finally:
        runner.close()


@pytest.mark.parametrize("case", ["sync", "async", "decoupled", "replay"])
def test_resumed_run_has_the_same_signals(case: str) -> None:
    uninterrupted = make_runner(env=COSTLY, **CASES[case])
    uninterrupted.run(lambda: None)
    first = make_runner(env=COSTLY, **CASES[case])
    first.clock.limit = 46
    first.run(lambda: None)
    resumed = make_runner(env=COSTLY, **CASES[case])
    resumed.load_state_dict(save_and_load(first.state_dict()))
    resumed.clock.limit = uninterrupted.clock.limit
    resumed.run(lambda: None)
    assert_same(uninterrupted.state_dict(), resumed.state_dict())


def test_reads_no_info_without_signals() -> None:
    runner = make_runner(TINY, UNREAD_INFO)
    runner.run(lambda: None)
    assert runner.actor.signals is None
    assert "signals" not in runner.actor.state_dict()


@pytest.mark.parametrize(
    ("algorithm", "error", "message"),
    [
        (
            NEEDS_DANGER,
            UsageError,
            r"NeedsDanger learns from info\['danger'\], which Costly does not give: its info has cost, pair;",
        ),
        (NEEDS_PAIR, UsageError, r"a step has no info\['pair'\].*signals = \{'pair': 0.0\}"),
        (CLASHES_WITH_EXTRAS, PluginError, "'log_prob' is a signal of ClashesWithExtras and an extra of its agent"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_missing_signal_raises(algorithm: str, error: type[Exception], message: str, workers: int) -> None:
    runner = make_runner(algorithm, COSTLY, env_workers=workers)
    try:
        with pytest.raises(error, match=message):
            runner.run(lambda: None)
    finally:
        runner.close()


class Infos(EnvBase):
    """Returns the given infos in order."""

    def __init__(self, *values: list[Any]) -> None:
        self.spec = Spec(None, None, 2, "Infos")  # type: ignore[arg-type]
        self.values = list(values)

    def info(self, key: str) -> list[Any]:
        return self.values.pop(0)


ALL = np.ones(2, np.bool_)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, np.inf], "of environment 1 is not finite"),
        ([1.0, "much"], "is not a number or an array"),
        ([1.0, np.ones(3)], "is not a number or an array of numbers of one shape"),
        ([np.ones(2), np.ones(2)], r"has the shape \[2\], and was a number before"),
    ],
)
def test_signals_must_be_finite_numbers_of_one_shape(values: list[Any], message: str) -> None:
    columns = InfoColumns(Infos([1, True], values), {"x": None}, "Learner")
    first = columns.add_to({}, ALL)["x"]
    assert (first.dtype, first.tolist()) == (np.float32, [1.0, 1.0])
    with pytest.raises(BadEnv, match=message):
        columns.add_to({}, ALL)


def test_rows_without_a_transition_need_no_signal() -> None:
    env = Infos([np.array([2.0]), np.array([3.0])], [None, 5.0], [np.ones(3), None], [None, None])
    columns = InfoColumns(env, {"x": None}, "Learner")
    assert columns.add_to({}, ALL)["x"].tolist() == [2, 3]  # an array with one number is a number
    assert columns.add_to({}, ~ALL)["x"].tolist() == [0, 0]
    columns = InfoColumns(env, {"x": None}, "Learner")
    assert columns.add_to({}, np.array([True, False]))["x"].tolist() == [[1, 1, 1], [0, 0, 0]]
    resumed = InfoColumns(env, {"x": None}, "Learner")
    resumed.load_state_dict(columns.state_dict())
    assert resumed.add_to({}, ~ALL)["x"].shape == (2, 3)

"""Cases that changes by `bench/mutants.py` survived: values at points where a wrong constant or branch shows."""

from __future__ import annotations

from pathlib import Path

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch

from rlplug_core.learning.losses import rescaled, unscaled
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import scale_and_shift
from rlplug_core.runs.curves import episodes
from rlplug_core.runs.journal import Journal
from tests.core.fakes import ENVS, TINY

CHAIN = f"{ENVS}:Chain"


def test_rescaled_values_follow_the_paper() -> None:
    """h(x) = sgn(x) (√(|x| + 1) - 1) + slope x at 3, 0 and -8."""
    values = torch.tensor([3.0, 0.0, -8.0], dtype=torch.float64)
    assert rescaled(values, 0.01).tolist() == pytest.approx([1.03, 0.0, -2.08])
    assert unscaled(rescaled(values)).tolist() == pytest.approx(values.tolist())


def test_an_unbounded_box_has_scale_1_and_shift_0() -> None:
    space = spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, 4.0]), dtype=np.float64)
    bounded, scale, shift = scale_and_shift(space)
    assert (bounded.tolist(), scale.tolist(), shift.tolist()) == ([False, True], [1.0, 2.0], [0.0, 2.0])


def test_the_default_lag_is_two_chunks_per_actor_but_one() -> None:
    lags = [
        Plan.make(TINY, CHAIN, {"runner": "decoupled", "actors": 3, **given}).max_lag for given in ({}, {"max_lag": 1})
    ]
    assert lags == [5, 1]


def test_episodes_of_a_journal_have_integer_steps(tmp_path: Path) -> None:
    """A run without a journal has no episodes; returns stay fractions."""
    path = tmp_path / "journal.jsonl"
    assert {name: len(values) for name, values in episodes(path).items()}["steps"] == 0
    journal = Journal(path)
    journal.write("episodes", 7, {"steps": [3, 7], "returns": [0.5, 1.0], "lengths": [3, 4], "workers": [0, 0]})
    journal.close()
    found = episodes(path)
    assert {found[name].dtype.kind for name in ("steps", "lengths", "workers")} == {"i"}
    assert (found["steps"].tolist(), found["returns"].tolist()) == ([3, 7], [0.5, 1.0])

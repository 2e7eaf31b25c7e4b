"""rlplug-rnd keeps the contract and finds a reward with novelty that it never finds without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from rlplug_rnd.rnd import RND, RNDConfig

from rlplug_core import Context, train
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.testing import Check, checks
from rlplug_core.types import Spec


@pytest.mark.parametrize("check", checks("rnd"), ids=str)
def test_conformance(check: Check) -> None:
    check()


@pytest.mark.parametrize(("int_coef", "found"), [(0.0, 0.0), (1.0, 1.0)])
def test_novelty_finds_a_reward_that_random_actions_miss(
    tmp_path: Path, int_coef: float, found: float
) -> None:
    options = {
        "total_timesteps": 40_000,
        "num_envs": 8,
        "seed": 1,
        "int_coef": int_coef,
        "eval_every": 40_000,
        "eval_episodes": 5,
        "final_eval_episodes": 0,
    }
    run = train("rnd", "rlplug_rnd.corridor:Corridor", options, out=tmp_path, hooks=False)
    assert run.evaluate(5, checkpoint="final").mean == found


def test_images_are_refused_in_one_sentence() -> None:
    spec = Spec(spaces.Box(0, 1, (3, 3), np.float32), spaces.Discrete(2), 2, "Any-v0")
    with pytest.raises(UsageError, match="rnd compares vectors"):
        RND(spec, RNDConfig(), Context(Seeds(1)))

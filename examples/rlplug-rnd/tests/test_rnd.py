"""rlplug-rnd passes the conformance checks and finds a reward that it never finds without novelty."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
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


def test_tensors_and_arrays_have_the_same_novelty(tmp_path: Path) -> None:
    """Row 1 is absent after its first step, and row 0 terminates at its second."""
    spec = Spec(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), 2, "Any-v0")
    learner = RND(spec, RNDConfig(), Context(Seeds(1)))
    rng = np.random.default_rng(0)
    fields = {name: np.zeros((3, 2), bool) for name in ("terminated", "truncated")}
    fields["terminated"][1, 0] = True
    arrays = SimpleNamespace(**fields, weight=np.array([[1, 1], [1, 0], [1, 1]], np.float32))
    errors = rng.random((3, 2), np.float32)
    tensors = SimpleNamespace(
        **{name: torch.from_numpy(part) for name, part in vars(arrays).items()}
    )
    arrays.values = lambda critic: (None, errors.copy())
    tensors.values = lambda critic: (None, torch.from_numpy(errors.copy()))
    expected = errors * np.array([[1, 0], [0, 0], [1, 1]])
    assert np.array_equal(learner.intrinsic(arrays), expected)
    assert np.array_equal(learner.intrinsic(tensors), expected)
    options = {"num_envs": 4, "total_timesteps": 600, "final_eval_episodes": 1}
    run = train("rnd", "tensor/CartPole-v1", options, out=tmp_path, hooks=False)
    assert run.status == "finished"


def test_images_raise() -> None:
    spec = Spec(spaces.Box(0, 1, (3, 3), np.float32), spaces.Discrete(2), 2, "Any-v0")
    with pytest.raises(UsageError, match="rnd compares vectors"):
        RND(spec, RNDConfig(), Context(Seeds(1)))

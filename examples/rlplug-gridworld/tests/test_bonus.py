"""The bonus equals a loop over rows, is not part of returns, and resumes from a saved state."""

from __future__ import annotations

import numpy as np
import pytest
from rlplug_gridworld.bonus import VisitBonus, VisitBonusConfig
from rlplug_gridworld.env import GridWorld
from rlplug_gridworld.grid import GRIDS

from rlplug_core.errors import UsageError
from rlplug_core.protocols import Wrapper
from rlplug_core.testing import Check, wrapper_checks
from rlplug_core.testing.envs import Pixels

#: A type checker compares the class with the protocol here.
WRAPPER: Wrapper = VisitBonus
ACTIONS = np.random.default_rng(0).integers(0, 4, (300, 6))


def make() -> VisitBonus:
    return VisitBonus(GridWorld("Room-v0", GRIDS["Room-v0"], 6), VisitBonusConfig(scale=0.5))


@pytest.mark.parametrize("check", wrapper_checks("visit-bonus", env="gridworld/Room-v0"), ids=str)
def test_conformance(check: Check) -> None:
    check()


def test_bonus_equals_a_loop_over_rows() -> None:
    env = make()
    bare = GridWorld("Room-v0", GRIDS["Room-v0"], 6)
    env.reset(1)
    bare.reset(1)
    visits = np.zeros(len(GRIDS["Room-v0"].moves))
    for action in ACTIONS:
        now = env.step(action)
        below = bare.step(action)
        for row in range(6):
            cell = below.final_obs[row].argmax()
            visits[cell] += 1
            assert now.reward[row] == np.float32(-1 + 0.5 / np.sqrt(visits[cell]))
        assert now.episodes == below.episodes


def test_bonus_resumes_from_its_state() -> None:
    env = make()
    fresh = make()
    env.reset(1)
    for action in ACTIONS[:100]:
        env.step(action)
    fresh.load_state_dict(env.state_dict())
    for action in ACTIONS[100:]:
        np.testing.assert_array_equal(env.step(action).reward, fresh.step(action).reward)


def test_observations_that_are_not_one_hot_raise() -> None:
    with pytest.raises(UsageError, match="observations of Pixels are not one-hot vectors"):
        VisitBonus(Pixels(1), VisitBonusConfig())

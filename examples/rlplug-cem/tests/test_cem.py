"""rlplug-cem passes the conformance checks and follows its paper."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from rlplug_cem.cem import CEM, CEMConfig

from rlplug_core import Context
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.testing import Check, checks
from rlplug_core.types import Spec

SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 2, "Any-v0")


@pytest.mark.parametrize("check", checks("cem", learn=True), ids=str)
def test_conformance(check: Check) -> None:
    check()


def learner() -> CEM:
    return CEM(SPEC, CEMConfig(), Context(Seeds(1)))


def test_parameters_change_only_at_the_start_of_an_episode() -> None:
    agent = learner().agent()
    obs = np.ones((2, 3), np.float32)
    clock = Clock(1)
    start = agent.act(obs, np.ones(2, bool), agent.initial(2), clock)
    same = agent.act(obs, np.zeros(2, bool), start.recurrent_state, clock)
    restarted = agent.act(obs, np.array([True, False]), same.recurrent_state, clock)
    np.testing.assert_array_equal(start.recurrent_state, same.recurrent_state)
    assert not np.array_equal(restarted.recurrent_state[0], same.recurrent_state[0])
    np.testing.assert_array_equal(restarted.recurrent_state[1], same.recurrent_state[1])


def test_mean_acts_without_exploration() -> None:
    trained = learner()
    trained.mean[:, 1] = 1
    agent = trained.agent()
    act = agent.act(
        np.ones((2, 3), np.float32), np.ones(2, bool), agent.initial(2), Clock(1), explore=False
    )
    assert act.action.tolist() == [1, 1]


def test_dictionary_observations_raise() -> None:
    spec = Spec(spaces.Dict({"image": SPEC.obs}), SPEC.action, 2, "Any-v0")
    with pytest.raises(UsageError, match="cem needs Box observations"):
        CEM(spec, CEMConfig(), Context(Seeds(1)))

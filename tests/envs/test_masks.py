"""Environments that raise where a forbidden action is taken: nothing on our side takes one, whatever is tried out."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import legal, sample, shape_of
from rlplug_envs.adapter import Adapter
from rlplug_envs.capture import self_test
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.wrappers.actions import StickyActions, StickyActionsConfig
from tests.envs.strict import Hiding, Inside, Several, Strict

KINDS = [Strict, Inside, Several]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_tried_out_with_allowed_actions(kind: type[Strict]) -> None:
    assert SerialEnvs(kind, 2).spec.inexact == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_environments_are_tried_out_with_allowed_actions(kind: type[Strict], mode: AutoresetMode) -> None:
    assert Adapter(lambda: SyncVectorEnv([kind] * 3, autoreset_mode=mode)).spec.inexact == ""


def test_hidden_state_shows_though_masks_then_differ() -> None:
    """Each continuation goes by its own masks, or it would do what is forbidden there."""
    assert "differs" in SerialEnvs(Hiding, 1).spec.inexact


def test_a_mask_that_does_not_fit_is_said_in_one_sentence() -> None:
    class Short(Strict):
        action_space = spaces.Discrete(4)

    with pytest.raises(UsageError, match="the 'action_mask' of Short-v0 has 3 entries, and its actions, Discrete"):
        SerialEnvs(Short, 1, "Short-v0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_sticky_action_sticks_only_where_it_is_allowed(kind: type[Strict]) -> None:
    """Repeated for ever, unless it is forbidden by then: what was chosen instead is what is repeated from there on."""
    env = StickyActions(SerialEnvs(kind, 3, inexact=""), StickyActionsConfig(probability=1.0))
    env.spec.action.seed(0)
    now, stuck = env.reset(0), 0
    taken = np.zeros((3, *shape_of(env.spec.action)))
    for _ in range(60):
        first, mask = now.is_first, np.array(now.obs["action_mask"])
        chosen = legal(env.spec.action, sample(env.spec.action, 3), mask)
        for row in range(3):
            allowed = (legal(env.spec.action, taken[[row]], mask[[row]]) == taken[[row]]).all()
            taken[row] = chosen[row] if first[row] or not allowed else taken[row]
            stuck += allowed and not first[row]
        now = env.step(chosen)
        np.testing.assert_array_equal(env.state_dict()["taken"], taken)
    assert 20 < stuck < 150


@pytest.mark.parametrize("kind", KINDS)
def test_sticky_actions_under_a_mask_go_on_to_the_same_bits(kind: type[Strict]) -> None:
    assert self_test(lambda: StickyActions(SerialEnvs(kind, 3, inexact=""), StickyActionsConfig(probability=0.7))) == ""

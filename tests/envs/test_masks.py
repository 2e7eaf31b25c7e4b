"""Environments that raise where a forbidden action is taken: nothing on our side takes one, whatever is tried out."""

from __future__ import annotations

import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_core.errors import UsageError
from rlplug_envs.adapter import Adapter
from rlplug_envs.vector import Rows
from tests.envs.strict import Hiding, Inside, Several, Strict

KINDS = [Strict, Inside, Several]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_tried_out_with_allowed_actions(kind: type[Strict]) -> None:
    assert Rows(kind, 2).spec.inexact == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", AutoresetMode)
def test_vector_environments_are_tried_out_with_allowed_actions(kind: type[Strict], mode: AutoresetMode) -> None:
    assert Adapter(lambda: SyncVectorEnv([kind] * 3, autoreset_mode=mode)).spec.inexact == ""


def test_hidden_state_shows_though_masks_then_differ() -> None:
    """Each continuation goes by its own masks, or it would do what is forbidden there."""
    assert "differs" in Rows(Hiding, 1).spec.inexact


def test_a_mask_that_does_not_fit_is_said_in_one_sentence() -> None:
    class Short(Strict):
        action_space = spaces.Discrete(4)

    with pytest.raises(UsageError, match="the 'action_mask' of Short-v0 has 3 entries, and its actions, Discrete"):
        Rows(Short, 1, "Short-v0")

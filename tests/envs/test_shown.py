"""Environments that are shown: rendering, numbers of `info` and success."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.errors import BadEnv
from rlplug_core.types import Array
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.shown import Shown
from rlplug_envs.step_info import episode_numbers, success
from rlplug_envs.vector import SerialEnvs


class Blind(gymnasium.Env[Any, Any]):
    """Has no `render`."""

    observation_space = action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}


class NoFrames(Blind):
    """Its `render` returns nothing, because its constructor takes no render mode."""

    def render(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Blind, "Blind has no frames; give it a method render, which returns [height, width, 3] of uint8"),
        (NoFrames, "let its constructor take render_mode, which is 'rgb_array' if frames are wanted"),
    ],
)
def test_environments_without_rendering_raise(kind: type[Blind], message: str) -> None:
    with pytest.raises(BadEnv, match=re.escape(message)):
        Shown(kind(), lambda opens, render: render()).reset()  # type: ignore[func-returns-value]


def test_minatar_renders_frames() -> None:
    pytest.importorskip("minatar", reason="the extra rlplug-envs[minatar] is not installed")
    env = Gymnasium().make_shown("MinAtar/Breakout-v1", "rgb_array")
    frames = list[Array]()
    assert isinstance(env, SerialEnvs)
    env.show(lambda begins, frame: frames.append(frame()))
    env.reset(1)
    assert [frame.shape for frame in frames] == [(10, 10, 3)]
    assert frames[0].dtype == np.uint8
    assert frames[0].max() > 100


def test_numbers_of_info_are_finite_floats() -> None:
    info = {"reward": 1.5, "steps": np.int64(3), "huge": 10**400, "none": np.nan, "text": "a", 5: 5.0}
    assert episode_numbers(info) == {"reward": 1.5, "steps": 3.0}


@pytest.mark.parametrize(
    "value", [None, np.nan, "False", {"a": 1}, np.empty(0), np.array([1.0, np.inf]), np.array([None])]
)
def test_invalid_success_info_is_ignored(value: object) -> None:
    assert success({"is_success": value}) is None
    assert success({"is_success": value, "success": False}) is False


@pytest.mark.parametrize("value", [True, 1, 1.0, np.bool_(True), np.float32(0.5), np.array([0, 1]), np.array(1.0)])
def test_success_may_be_a_number_or_an_array(value: object) -> None:
    assert success({"is_success": value}) is True
    assert success({"is_success": np.zeros_like(value)}) is False

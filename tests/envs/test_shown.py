"""What environments draw becomes frames of bytes, or is refused in one sentence."""

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
from rlplug_envs.shown import Shown, numbers, picture, success
from rlplug_envs.vector import SerialEnvs


def test_floats_up_to_one_are_colors() -> None:
    drawn = np.array([[[0.0, 0.5, 1.0]]])
    assert picture(drawn, "Game").tolist() == [[[0, 128, 255]]]
    assert picture([drawn * 0, drawn], "Game").tolist() == [[[0, 128, 255]]]  # of several the last


@pytest.mark.parametrize("drawn", [np.full((2, 2, 3), -7.0), np.zeros((2, 2, 2)), np.full((2, 2, 3), np.nan), None])
def test_invalid_frames_are_refused(drawn: object) -> None:
    with pytest.raises(BadEnv, match=r"Game\.render\(\) returned .* instead of a frame \[height, width, 3\] of uint8"):
        picture(drawn, "Game")


class Blind(gymnasium.Env[Any, Any]):
    """Has no `render`, as an environment that is a few minutes old."""

    observation_space = action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}


class Asleep(Blind):
    """Draws only if it was told so when it was made."""

    def render(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Blind, "Blind has no frames; give it a method render, which returns [height, width, 3] of uint8"),
        (Asleep, "let its constructor take render_mode, which is 'rgb_array' if frames are wanted"),
    ],
)
def test_environments_without_rendering_name_the_option(kind: type[Blind], sentence: str) -> None:
    with pytest.raises(BadEnv, match=re.escape(sentence)):
        Shown(kind(), lambda opens, render: render()).reset()  # type: ignore[func-returns-value]


def test_minatar_can_be_watched() -> None:
    pytest.importorskip("minatar", reason="the extra rlplug-envs[minatar] is not installed")
    env, frames = Gymnasium().make_shown("MinAtar/Breakout-v1", "rgb_array"), list[Array]()
    assert isinstance(env, SerialEnvs)
    env.show(lambda begins, frame: frames.append(frame()))
    env.reset(1)
    assert [frame.shape for frame in frames] == [(10, 10, 3)]
    assert frames[0].dtype == np.uint8
    assert frames[0].max() > 100


def test_numbers_of_info_are_those_that_floats_hold() -> None:
    info = {"reward": 1.5, "steps": np.int64(3), "huge": 10**400, "none": np.nan, "text": "a", 5: 5.0}
    assert numbers(info) == {"reward": 1.5, "steps": 3.0}


@pytest.mark.parametrize(
    "says", [None, np.nan, "False", {"a": 1}, np.empty(0), np.array([1.0, np.inf]), np.array([None])]
)
def test_episodes_without_success_info_count_as_neither(says: object) -> None:
    assert success({"is_success": says}) is None
    assert success({"is_success": says, "success": False}) is False


@pytest.mark.parametrize("says", [True, 1, 1.0, np.bool_(True), np.float32(0.5), np.array([0, 1]), np.array(1.0)])
def test_numbers_and_arrays_of_numbers_say_whether_there_was_success(says: object) -> None:
    assert success({"is_success": says}) is True
    assert success({"is_success": np.zeros_like(says)}) is False

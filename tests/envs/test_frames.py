"""Rendered frames become uint8 colors, and each frame of a film gets the size of the first."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rlplug_core.errors import BadEnv
from rlplug_core.films.film import Films
from rlplug_core.films.frames import resize
from rlplug_core.films.player import Reel
from rlplug_envs.rows import frame_rate
from rlplug_envs.shown import picture

COLORS = np.random.default_rng(0).integers(0, 256, (4, 5, 3))


@pytest.mark.parametrize("kind", [np.uint8, np.int64, np.int16, np.float32, np.float64])
def test_numbers_up_to_255_of_any_type_are_colors(kind: Any) -> None:
    frame = picture(COLORS.astype(kind), "Env")
    assert frame.dtype == np.uint8
    assert np.array_equal(frame, COLORS)


def test_floats_up_to_1_and_booleans_are_scaled_to_255() -> None:
    assert np.array_equal(picture(COLORS / 255, "Env"), COLORS)
    assert np.array_equal(picture(COLORS > 99, "Env"), 255 * (COLORS > 99))
    assert np.array_equal(picture([COLORS * 0, COLORS / 255], "Env"), COLORS)  # the last of several


def test_gray_is_repeated_and_a_fourth_channel_is_dropped() -> None:
    gray = COLORS[:, :, 0].astype(np.uint8)
    for form in (gray, gray[:, :, None]):
        assert np.array_equal(picture(form, "Env"), np.stack([gray] * 3, 2))
    alpha = np.full((4, 5, 1), 7)
    assert np.array_equal(picture(np.concatenate([COLORS, alpha], 2), "Env"), COLORS)


@pytest.mark.parametrize(
    "wrong",
    [
        COLORS - 300,
        COLORS * 2.0,
        None,
        np.zeros((0, 0, 3)),
        np.zeros(3),
        np.full((2, 2), np.nan),
        "text",
        np.zeros((2, 2, 2)),
    ],
)
def test_invalid_frames_raise(wrong: Any) -> None:
    with pytest.raises(BadEnv, match=r"Env.render\(\) returned .* instead of a frame"):
        picture(wrong, "Env")


def test_resize_repeats_and_drops_pixels() -> None:
    frame = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert np.array_equal(resize(frame, 4, 4), frame.repeat(2, 0).repeat(2, 1))
    assert np.array_equal(resize(resize(frame, 4, 4), 2, 2), frame)
    assert resize(frame, 3, 1).shape == (3, 1, 3)


class Sizes:
    def __init__(self) -> None:
        self.shapes: list[Any] = []

    def add(self, frame: Any) -> None:
        self.shapes.append(frame.shape)

    def close(self) -> None: ...
    def discard(self) -> None: ...


def test_frames_are_resized_to_the_first() -> None:
    film = Sizes()
    reel = Reel(Films(film), sheet=True)
    for height in (40, 41):
        reel(True, partial(np.zeros, (height, 40, 3), np.uint8))
        for growth in range(3):
            reel(False, partial(np.zeros, (height + growth, 50, 3), np.uint8))
    assert film.shapes == [(40, 40, 3)] * 8


def test_invalid_frame_rate_becomes_30() -> None:
    for rate in (0, -5, None, "fast", np.nan, np.inf, [30]):
        assert frame_rate({"render_fps": rate}) == 30
    assert [frame_rate({"render_fps": rate}) for rate in (4, 0.5, np.int64(7))] == [4, 0.5, 7]
    assert frame_rate({}) == frame_rate(None) == 30

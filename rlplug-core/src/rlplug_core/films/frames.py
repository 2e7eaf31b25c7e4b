"""Sizes of frames for films."""

from __future__ import annotations

import numpy as np

from rlplug_core.types import Array

#: Minimum pixels of the shorter side; smaller frames, such as those of a grid of ten pixels, are enlarged.
SMALLEST = 128


def enlarge(frame: Array) -> Array:
    """Repeat pixels until the shorter side has at least `SMALLEST` pixels."""
    times = -(-SMALLEST // min(frame.shape[:2]))
    return frame if times == 1 else frame.repeat(times, 0).repeat(times, 1)


def resize(frame: Array, height: int, width: int) -> Array:
    """Return a frame [H, W, 3] at another size; each pixel is the nearest one."""
    if frame.shape[:2] == (height, width):
        return frame
    rows = np.arange(height) * frame.shape[0] // height
    columns = np.arange(width) * frame.shape[1] // width
    return frame[rows[:, None], columns]


def pad_to_even(frame: Array) -> Array:
    """Make both sides even, as H.264 requires, by repeating the last row and column."""
    height, width = frame.shape[:2]
    if height % 2 == width % 2 == 0:
        return frame
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")

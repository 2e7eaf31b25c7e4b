"""Frames, as films take them."""

from __future__ import annotations

import numpy as np

from rlplug_core.types import Array

#: Frames with a shorter side are enlarged, so that a game of ten pixels can be seen.
SMALLEST = 128


def enlarged(frame: Array) -> Array:
    """A frame whose shorter side has at least `SMALLEST` pixels, each of its own repeated."""
    times = -(-SMALLEST // min(frame.shape[:2]))
    return frame if times == 1 else frame.repeat(times, 0).repeat(times, 1)


def even(frame: Array) -> Array:
    """A frame with even sides, as H.264 needs them; the last row and column are repeated."""
    height, width = frame.shape[:2]
    return (
        np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
        if height % 2 or width % 2
        else frame
    )

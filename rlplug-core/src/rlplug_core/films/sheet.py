"""A contact sheet: the best and the worst of several episodes, each as a row of small frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlplug_core.config.numbers import figures
from rlplug_core.types import Array

#: Number of frames in a row, and the width of a frame in pixels.
COLUMNS = 8
WIDTH = 160


@dataclass
class Strip:
    """Small frames of one episode, evenly spaced over its length: it keeps every `stride`-th frame."""

    total: float = 0.0
    length: int = 0
    frames: list[Array] = field(default_factory=list)
    stride: int = 1
    seen: int = 0

    def needs_frame(self) -> bool:
        """Return whether the next frame is needed."""
        return self.seen % self.stride == 0

    def keep(self, frame: Array) -> None:
        """Keep a small copy of the next frame; if there are too many, drop every second one."""
        self.frames.append(shrink(frame))
        if len(self.frames) >= 2 * COLUMNS:
            self.frames = self.frames[::2]
            self.stride *= 2

    def count_frame(self) -> None:
        """Count a frame, kept or not."""
        self.seen += 1

    def row(self) -> list[Array]:
        """Return `COLUMNS` frames, or all if there are fewer."""
        count = min(COLUMNS, len(self.frames))
        return [
            self.frames[round(position)] for position in np.linspace(0, len(self.frames) - 1, count)
        ]


def shrink(frame: Array) -> Array:
    """Return a copy of a frame that is about `WIDTH` pixels wide."""
    from PIL import Image

    height = max(1, round(frame.shape[0] * WIDTH / frame.shape[1]))
    return np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize((WIDTH, height)))


def sheet(path: Path, strips: list[Strip]) -> Path:
    """Write the best and the worst episode, one below the other, as a PNG; a single episode is written once."""
    from PIL import Image, ImageDraw

    ranked = sorted((strip for strip in strips if strip.frames), key=lambda strip: -strip.total)
    rows = [("", ranked[0])]
    if len(ranked) > 1:
        rows = [("best", ranked[0]), ("worst", ranked[-1])]
    side = max(len(frame) for _, strip in rows for frame in strip.frames)
    line = 18
    gap = 4
    page = Image.new(
        "RGB", (COLUMNS * (WIDTH + gap) + gap, len(rows) * (side + line + gap) + gap), "white"
    )
    draw: Any = ImageDraw.Draw(page)
    for number, (title, strip) in enumerate(rows):
        top = gap + number * (side + line + gap)
        draw.text(
            (gap, top),
            f"{title} return {figures(strip.total)}, {strip.length:,} steps".strip(),
            fill="black",
        )
        for position, frame in enumerate(strip.row()):
            page.paste(Image.fromarray(frame), (gap + position * (WIDTH + gap), top + line))
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path)
    return path

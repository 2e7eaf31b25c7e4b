"""Frames to a WebP or a GIF, by Pillow."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from rlplug_core.films.frames import enlarged
from rlplug_core.types import Array

#: Frames per second of a GIF, which counts in hundredths of a second: browsers show a frame of one for ten of them.
FASTEST = 50
GIF: dict[str, Any] = {"format": "GIF"}
#: Every frame a key frame: the encoder would leave out what looks like the one before.
WEBP: dict[str, Any] = {"format": "WEBP", "quality": 80, "method": 0}


class Animation:
    """WebP or GIF; its frames are kept until it is closed."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.fps = fps
        self.frames: list[Any] = []

    def add(self, frame: Array) -> None:
        from PIL import Image

        self.frames.append(Image.fromarray(enlarged(frame)))

    def close(self) -> None:
        if not self.frames:
            return
        first, *rest = self.frames
        temporary = self.path.with_name(f".{self.path.name}.part")
        kind, unit = (GIF, 10) if self.path.suffix.lower() == ".gif" else (WEBP, 1)
        ends = [
            round(1000 / unit * count / self.fps) * unit for count in range(len(self.frames) + 1)
        ]
        lasting = [end - begin for begin, end in pairwise(ends)]
        first.save(temporary, save_all=True, append_images=rest, duration=lasting, loop=0, **kind)
        temporary.rename(self.path)

    def discard(self) -> None:
        """Nothing is written yet."""

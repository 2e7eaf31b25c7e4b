"""Writes frames to a WebP or GIF file with Pillow."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from rlplug_core.films.frames import enlarge
from rlplug_core.types import Array

#: Maximum frames per second of a GIF. Its unit is 1/100 s, and browsers show a frame of 1/100 s for 10/100 s.
FASTEST = 50
GIF: dict[str, Any] = {"format": "GIF"}
#: Options that write every frame; by default the encoder drops frames that equal the previous one.
WEBP: dict[str, Any] = {"format": "WEBP", "quality": 80, "method": 0}


class Animation:
    """A WebP or GIF film; frames stay in memory until `close`."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.fps = fps
        self.frames: list[Any] = []

    def add(self, frame: Array) -> None:
        from PIL import Image

        self.frames.append(Image.fromarray(enlarge(frame)))

    def close(self) -> None:
        if not self.frames:
            return
        first, *rest = self.frames
        temporary = self.path.with_name(f".{self.path.name}.part")
        kind, unit = (GIF, 10) if self.path.suffix.lower() == ".gif" else (WEBP, 1)
        ends = [
            round(1000 / unit * count / self.fps) * unit for count in range(len(self.frames) + 1)
        ]
        durations = [end - start for start, end in pairwise(ends)]
        first.save(temporary, save_all=True, append_images=rest, duration=durations, loop=0, **kind)
        temporary.replace(self.path)

    def discard(self) -> None:
        """Do nothing; no file exists yet."""

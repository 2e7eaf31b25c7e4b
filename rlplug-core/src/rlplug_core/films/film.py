"""Frames to a film: `.mp4` by PyAV, `.webp` and `.gif` by Pillow, or pictures of their own in a directory.

An `.mp4` is H.264 in yuv420p with even sides, which browsers and MLflow play.
"""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from rlplug_core.errors import MissingPackage, UsageError
from rlplug_core.films.animation import FASTEST, Animation
from rlplug_core.films.frames import enlarged, even
from rlplug_core.types import Array

#: What a film may be, and the package that writes it.
KINDS = {".mp4": "av", ".webp": "PIL", ".gif": "PIL"}


class Film(Protocol):
    """Takes frames [H, W, 3] uint8 of one size; closed, it is whole, and discarded it leaves what was there before."""

    def add(self, frame: Array) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


def film(path: Path, fps: float) -> Film:
    """A film of the kind that the path's ending names.

    Raises:
        UsageError: it names none, or one that cannot be so fast. MissingPackage: what writes it is not installed.
    """
    package = KINDS.get(path.suffix.lower())
    if package is None:
        raise UsageError(
            f"{path} is no film; name it {path.stem}.mp4, {path.stem}.webp or {path.stem}.gif"
        )
    if path.suffix.lower() == ".gif" and fps > FASTEST:
        raise UsageError(
            f"a GIF has at most {FASTEST} frames per second, not {fps:g}; name it {path.stem}.webp or {path.stem}.mp4, "
            f"or give --fps {FASTEST}"
        )
    if find_spec(package) is None:
        other = f", or name it {path.stem}.webp" if package == "av" and find_spec("PIL") else ""
        raise MissingPackage(
            f"{path.name} needs {package}: python -m pip install 'rlplug-cli[video]'{other}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f".{path.name}.part").unlink(
        missing_ok=True
    )  # what is left of another, or a link to elsewhere
    return Mp4(path, fps) if package == "av" else Animation(path, fps)


def usual_suffix() -> str:
    """Return the suffix of a film that nobody named: `.mp4` where PyAV is installed."""
    return ".mp4" if find_spec("av") else ".webp"


class Mp4:
    """H.264, encoded as frames come; the file has its name only once it is whole."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.fps = Fraction(fps).limit_denominator(1000)
        self.temporary = path.with_name(f".{path.name}.part")
        self.container: Any = None
        self.stream: Any = None

    def add(self, frame: Array) -> None:
        import av

        frame = even(enlarged(frame))
        if self.container is None:
            self.container = av.open(
                str(self.temporary), "w", format="mp4", options={"movflags": "faststart"}
            )
            options = {
                "preset": "ultrafast",
                "crf": "23",
            }  # half the time of veryfast, three times the bytes
            self.stream = self.container.add_stream("libx264", rate=self.fps, options=options)
            self.stream.thread_count = 1  # who trains has better use for the others
            self.stream.height, self.stream.width = frame.shape[:2]
            self.stream.pix_fmt = "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        self.container.mux(self.stream.encode(picture))

    def close(self) -> None:
        if self.container is None:
            return
        with ExitStack() as failing:
            failing.callback(self.discard)
            self.container.mux(self.stream.encode())
            failing.pop_all()
        self.container.close()
        self.temporary.rename(self.path)

    def discard(self) -> None:
        if self.container is not None:
            self.container.close()
        self.temporary.unlink(missing_ok=True)


class Pictures:
    """Numbered pictures, `frame-000000.png`, in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        if directory.exists() and any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty; name another directory with --frames")
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, frame: Array) -> None:
        from PIL import Image

        Image.fromarray(np.ascontiguousarray(frame)).save(
            self.directory / f"frame-{self.count:06d}.png"
        )
        self.count += 1

    def close(self) -> None:
        """Each is whole already."""

    def discard(self) -> None:
        """They show how far it came; no other picture had their names."""


class Films:
    """Several films that get the same frames, closed at the end of a `with`, and discarded where an error ends it."""

    def __init__(self, *films: Film) -> None:
        self.films = films

    def add(self, frame: Array) -> None:
        for one in self.films:
            one.add(frame)

    def __enter__(self) -> Films:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as ending:  # the others end too where one fails
            for one in self.films:
                ending.callback(one.close if error is None else one.discard)

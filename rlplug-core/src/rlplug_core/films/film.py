"""Writes frames to a film (`.mp4` with PyAV, `.webp` and `.gif` with Pillow) or to numbered pictures.

An `.mp4` file has H.264 in yuv420p with even sides, which browsers and MLflow can play.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from rlplug_core.config.files import temporary_directory
from rlplug_core.errors import MissingPackage, UsageError
from rlplug_core.films.frames import enlarge, pad_to_even
from rlplug_core.types import Array

#: Maximum frames per second of a GIF: its time unit is 1/100 s, and browsers show a frame of 1/100 s for 10/100 s.
MAX_GIF_FPS = 50
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
        first, *later_frames = self.frames
        is_gif = self.path.suffix.lower() == ".gif"
        unit = 10 if is_gif else 1  # milliseconds
        # Moments are rounded, not durations, so that errors do not add up.
        moments = [
            round(1000 / unit * count / self.fps) * unit for count in range(len(self.frames) + 1)
        ]
        with temporary_directory(part_directory(self.path)) as folder:
            temporary = folder / self.path.name
            first.save(
                temporary,
                save_all=True,
                append_images=later_frames,
                duration=[end - start for start, end in pairwise(moments)],
                loop=0,
                **(GIF if is_gif else WEBP),
            )
            temporary.replace(self.path)

    def discard(self) -> None:
        """Do nothing; no file exists yet."""


#: File suffixes of films, with the package that writes them.
KINDS = {".mp4": "av", ".webp": "PIL", ".gif": "PIL"}


class Film(Protocol):
    """Accepts frames [H, W, 3] uint8 of one size. `close` completes the file, `discard` keeps an older file."""

    def add(self, frame: Array) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...


def film(path: Path, fps: float) -> Film:
    """Create a film; the suffix of the path selects its kind.

    Raises:
        UsageError: the suffix is unknown, or the format does not support so many frames per second.
        MissingPackage: the package that writes this format is not installed.
    """
    package = KINDS.get(path.suffix.lower())
    if package is None:
        raise UsageError(
            f"{path} is not a film file; name it {path.stem}.mp4, {path.stem}.webp or {path.stem}.gif"
        )
    if path.suffix.lower() == ".gif" and fps > MAX_GIF_FPS:
        raise UsageError(
            f"a GIF has at most {MAX_GIF_FPS} frames per second, not {fps:g}; name it {path.stem}.webp or "
            f"{path.stem}.mp4, or give --fps {MAX_GIF_FPS}"
        )
    if find_spec(package) is None:
        alternative = (
            f", or name it {path.stem}.webp" if package == "av" and find_spec("PIL") else ""
        )
        raise MissingPackage(
            f"{path.name} needs {package}: python -m pip install 'rlplug-cli[video]'{alternative}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return Mp4(path, fps) if package == "av" else Animation(path, fps)


def part_directory(path: Path) -> Path:
    """Return the temporary directory of a film that is being written."""
    return path.with_name(f".{path.name}.part")


def usual_suffix() -> str:
    """Return the default suffix of a film: `.mp4` if PyAV is installed, else `.webp`."""
    return ".mp4" if find_spec("av") else ".webp"


class Mp4:
    """An H.264 film, encoded frame by frame; the file gets its name when it is complete."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.fps = Fraction(fps).limit_denominator(1000)
        self.container: Any = None
        self.stream: Any = None
        self.unfinished = path
        self.folder = ExitStack()  # removes the temporary directory

    def add(self, frame: Array) -> None:
        import av

        frame = pad_to_even(enlarge(frame))
        if self.container is None:
            folder = self.folder.enter_context(temporary_directory(part_directory(self.path)))
            self.unfinished = folder / self.path.name
            self.container = av.open(
                str(self.unfinished), "w", format="mp4", options={"movflags": "faststart"}
            )
            # ultrafast: half the time of veryfast, three times the bytes
            options = {"preset": "ultrafast", "crf": "23"}
            self.stream = self.container.add_stream("libx264", rate=self.fps, options=options)
            self.stream.thread_count = 1  # leave the other cores to the training
            self.stream.height, self.stream.width = frame.shape[:2]
            self.stream.pix_fmt = "yuv420p"
        picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        self.container.mux(self.stream.encode(picture))

    def close(self) -> None:
        if self.container is None:
            return
        with self.folder:
            with closing(self.container):
                self.container.mux(self.stream.encode())
            self.unfinished.replace(self.path)

    def discard(self) -> None:
        with self.folder:
            if self.container is not None:
                self.container.close()


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
        """Do nothing; every picture is complete."""

    def discard(self) -> None:
        """Keep the pictures; they show the episode up to the error."""


class Films:
    """Several films with the same frames; a `with` block closes them, or discards them after an error."""

    def __init__(self, *films: Film) -> None:
        self.films = films

    def add(self, frame: Array) -> None:
        for film in self.films:
            film.add(frame)

    def __enter__(self) -> Films:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:  # also closes the other films if one fails
            for film in self.films:
                stack.callback(film.close if error is None else film.discard)

"""Environments that are watched: every reset and every step shows its frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlplug_core.errors import BadEnv, quote_all
from rlplug_core.protocols import Show
from rlplug_core.types import Array, GymEnv, GymWrapper

#: The types of numbers in `info`, and the most numbers that are kept for an episode.
NUMBER = (bool, int, float, np.bool_, np.integer, np.floating)
MOST_NUMBERS = 32
#: The keys of `info` for the success of an episode.
SUCCESS = ("is_success", "success")
#: Render modes that give frames.
FRAMES = {"rgb_array", "rgb_array_list"}
#: The form of a frame, in messages.
FRAME = "[height, width, 3] of uint8"


class Shown(GymWrapper):
    """An environment that calls `show` after each reset and each step; `show` decides whether to draw."""

    def __init__(self, env: GymEnv, show: Show) -> None:
        super().__init__(env)
        self.show = show
        modes = env.metadata.get("render_modes") or ()
        if env.render_mode != "human" and modes and not FRAMES & {*modes}:
            raise BadEnv(
                f"{type(env.unwrapped).__name__} draws no frames: its metadata names the render modes "
                f"{quote_all(modes)}; add 'rgb_array' to them, and return such a frame from render"
            )

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[object, dict[str, object]]:
        result = self.env.reset(seed=seed, options=options)
        self.show(True, self.frame)
        return result

    def step(
        self,
        action: object,
    ) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self.show(False, self.frame)
        return result

    def frame(self) -> Array:
        """Return the current frame [H, W, 3] uint8.

        Raises:
            BadEnv: the environment gives nothing of this shape.
        """
        name = type(self.env.unwrapped).__name__
        try:
            drawn = self.env.render()
        except NotImplementedError as error:  # Gymnasium's own, without a message
            raise BadEnv(
                f"{name} has no frames; give it a method render, which returns {FRAME}"
            ) from error
        return picture(drawn, name)


def picture(drawn: object, name: str) -> Array:
    """Return the result of an environment's `render` as a frame [H, W, 3] uint8.

    Raises:
        BadEnv: the result is not a frame.
    """
    if drawn is None:
        raise BadEnv(
            f"{name}.render() returned None instead of a frame {FRAME}; let its constructor take render_mode, "
            "which is 'rgb_array' if frames are wanted"
        )
    frame = np.asarray(drawn[-1] if isinstance(drawn, list) and drawn else drawn)
    colors = to_colors(frame)
    if colors is None:
        raise BadEnv(
            f"{name}.render() returned {frame.dtype} {frame.shape} instead of a frame {FRAME}"
        )
    return colors


def to_colors(frame: Array) -> Array | None:
    """Return a picture as colors [H, W, 3] of uint8; None if it is not one.

    Gray [H, W] and [H, W, 1] is repeated, a fourth channel [H, W, 4] is dropped. Numbers of any type are 0 to 255;
    floats of at most 1, and booleans, are shares of 255.
    """
    if frame.ndim == 2:
        frame = frame[:, :, None]
    if frame.ndim != 3 or frame.shape[2] not in (1, 3, 4) or not frame.size:
        return None
    frame = frame[:, :, :3].repeat(3 if frame.shape[2] == 1 else 1, axis=2)
    if frame.dtype == np.uint8:
        return frame
    if frame.dtype.kind not in "biuf" or not (frame.min() >= 0 and frame.max() <= 255):
        return None
    scale = 255 if frame.dtype.kind in "bf" and frame.max() <= 1 else 1
    return np.rint(frame * float(scale)).astype(np.uint8)


def success(info: Mapping[str, object]) -> bool | None:
    """Return whether a step's `info` reports success; None if it does not say."""
    for key in SUCCESS:
        if key not in info:
            continue
        value = np.asarray(info[key])
        if value.dtype.kind in "biuf" and value.size and np.isfinite(value).all():
            return bool(value.any())
    return None


def numbers(info: Mapping[str, object]) -> dict[str, float]:
    """Return the finite numbers in a step's `info`, read at the end of an episode."""
    finite: dict[str, float] = {}
    for key, value in list(info.items()):
        if (
            isinstance(value, NUMBER)
            and isinstance(key, str)
            and len(finite) < MOST_NUMBERS
            and _finite(value)
        ):
            finite[key] = float(value)
    return finite


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        return False


def of_rows(
    info: object,
    rows: Array,
    count: int,
) -> list[Mapping[str, object]]:
    """Return the parts of a vector's `info` that belong to some of its rows.

    Gymnasium marks under `_key` which rows have `key`. Values without one entry for each row are left out. Some
    vectors have a dictionary for each row. Columns are read at once, because thousands of episodes may end in a step.

    Args:
        info: of one step.
        rows: numbers of the rows.
        count: how many rows the vector has.
    """
    if isinstance(info, np.ndarray | list | tuple):
        infos = [info[row] if len(info) == count else None for row in rows.tolist()]
        return [row_info if isinstance(row_info, Mapping) else {} for row_info in infos]
    if not isinstance(info, Mapping):
        return [{} for _ in rows]
    columns = {
        key: value[rows].tolist()
        for key, value in info.items()
        if isinstance(value, np.ndarray) and value.shape == (count,)
    }
    presence = {key: columns.pop(key) for key in [*columns] if key.startswith("_")}
    return [
        {
            key: column[index]
            for key, column in columns.items()
            if f"_{key}" not in presence or presence[f"_{key}"][index]
        }
        for index in range(len(rows))
    ]


def value_of_rows(info: Any, key: str, always: Array) -> list[object]:
    """Return the value of `key` in a vector's `info` for each row; None if a row has none.

    Args:
        info: one dictionary of arrays, with a mask of the rows that have `key` under `_key`, or one for each row.
        always: [N] True.
    """
    rows = len(always)
    if not isinstance(info, Mapping):
        return [row_info.get(key) if isinstance(row_info, Mapping) else None for row_info in info]
    values = info.get(key)
    present = info.get(f"_{key}", always)
    if present is always and isinstance(values, np.ndarray) and values.shape == (rows,):
        return list(values.tolist())
    if values is None or np.ndim(values) == 0 or len(values) != rows:
        return [None] * rows
    return [
        value if is_present else None for value, is_present in zip(values, present, strict=True)
    ]

"""Environments that are watched: every reset and every step shows its frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlplug_core.errors import BadEnv, quote_all
from rlplug_core.protocols import Show
from rlplug_core.types import Array, GymEnv, GymWrapper

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
    floats of at most 1, and booleans, are fractions of 255.
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

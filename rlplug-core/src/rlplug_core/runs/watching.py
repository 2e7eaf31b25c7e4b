"""Show a run's policy in a window, as a film, as pictures, or as a contact sheet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlplug_core.config.files import hold_directory
from rlplug_core.errors import MissingPackage, PluginError, RlplugError, UsageError, plain
from rlplug_core.films.film import Film, Films, Pictures, film
from rlplug_core.films.player import Reel, play
from rlplug_core.films.sheet import sheet
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Env
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.evaluation import Conditions, check_whole, prepare_agent, seed_of

#: The directory of a run for films.
VIDEOS = "videos"


@dataclass(frozen=True)
class Showing:
    """The outputs of episodes to show; without any, a window opens. Fields as in `Run.play`."""

    video: Path | None = None
    frames: Path | None = None
    every: int = 1
    fps: float | None = None
    sheet: Path | None = None

    def __post_init__(self) -> None:
        check_whole("every", self.every, 1)
        if self.fps is not None and not 0 < self.fps <= 1000:
            raise UsageError(
                f"fps is {self.fps:g}; it must be above 0 and at most 1000 frames per second"
            )
        if self.sheet is not None and self.sheet.suffix.lower() != ".png":
            raise UsageError(
                f"a sheet is a PNG file, and {self.sheet} does not end in .png; name it {self.sheet.stem}.png"
            )

    @property
    def in_window(self) -> bool:
        return self.video is None and self.frames is None and self.sheet is None

    @contextmanager
    def films(self, fps: float, run: Path) -> Iterator[Films]:
        """Yield the films that get the frames; a film in the run's own `videos/` stays there even if that is a link."""
        films: list[Film] = []
        if self.frames is not None:
            films.append(Pictures(self.frames))
        with ExitStack() as stack:
            if self.video is not None:
                video = self.video.absolute()
                if video.parent == run / VIDEOS:
                    video = stack.enter_context(hold_directory(video.parent)) / video.name
                films.append(film(video, self.fps or fps))
            yield stack.enter_context(Films(*films))


def show_episodes(
    plan: Plan,
    directory: RunDirectory,
    showing: Showing,
    episodes: int,
    seed: int | None,
    conditions: Conditions,
) -> Evaluation:
    """Play episodes with a checkpoint and show them.

    Raises:
        UsageError: the environment has no frames, the machine no display, the run no such checkpoint, or a number is
            out of range.
        MissingPackage: a package that draws frames or writes films is not installed.
    """
    if showing.in_window and not has_display():
        raise UsageError("there is no display for a window; write a film instead: --video film.mp4")
    check_whole("episodes", episodes, 1)
    play_seed = seed_of(plan, seed)
    env = make_shown_env(conditions.apply_to(plan), "human" if showing.in_window else "rgb_array")
    try:
        agent, clock = prepare_agent(plan, directory, env, conditions, play_seed)
        with showing.films(complete(env).fps, directory.path) as films, renderer_errors(plan.env):
            reel = (
                None if showing.in_window else Reel(films, showing.every, showing.sheet is not None)
            )
            result = play(
                agent,
                env,
                episodes=episodes,
                seed=play_seed,
                clock=clock,
                reel=reel,
                explore=conditions.stochastic,
            )
        if showing.sheet is not None and reel is not None:
            sheet(showing.sheet, reel.strips)
        return result
    finally:
        env.close()


def make_shown_env(plan: Plan, render_mode: str) -> Env:
    """Return one environment inside the plan's wrappers that renders frames, or opens a window with `human`."""
    if render_mode == "rgb_array":
        headless()
    return plan.for_evaluation(plan.eval_source.with_copies().make_shown(render_mode))


def headless() -> None:
    """Let renderers work without a window if this machine has no display."""
    if not has_display():
        # pygame reads this when it starts; SDL takes the first driver that it has. With only "dummy", highway-env
        # draws nothing.
        os.environ.setdefault("SDL_VIDEODRIVER", "offscreen,dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")  # read when MuJoCo is imported


def has_display() -> bool:
    """Return whether a window could open here."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


@contextmanager
def renderer_errors(id: str) -> Iterator[None]:
    """Turn a foreign renderer's exception into one sentence: a missing package or graphics library."""
    try:
        yield
    except RlplugError:
        raise
    except Exception as error:  # a renderer and its graphics library may raise anything
        message = plain(str(error), 300)
        if isinstance(error, ImportError) or type(error).__name__ == "DependencyNotInstalled":
            raise MissingPackage(f"{id} needs a package to be drawn: {message}") from error
        raise PluginError(f"{id} cannot be drawn: {type(error).__name__}: {message}") from error

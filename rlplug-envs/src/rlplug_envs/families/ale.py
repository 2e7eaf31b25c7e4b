"""Atari games: the state of the Arcade Learning Environment, and the wrappers of one game below all statistics."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, StickyAction

from rlplug_core.errors import MissingPackage, UsageError
from rlplug_core.types import Array, GymEnv, GymWrapper

#: The emulator, as `capture` names types.
INTERFACE = "ale_py._ale_py.ALEInterface"
#: The width and height of the screen.
SCREEN = (160, 210)
FIRE = 1
#: The emulator's own sticky actions, by the name of their setting.
STICKY = "repeat_action_probability"
#: The emulator's own limit, in frames; 0 is none.
FRAMES = "max_num_frames_per_episode"


def hidden_state(ale: Any) -> str:
    """Return which part of the emulator's state it does not export; "" if there is none."""
    if not ale.getFloat(STICKY):
        return ""
    return f"repeats an action that it does not expose; --wrap atari repeats actions itself ({STICKY} 0 leaves it out)"


def capture_game(ale: Any) -> Array:
    """Return the emulator's state as bytes, with that of its generator, which the emulator omits by default."""
    return np.frombuffer(ale.cloneState(include_rng=True).serialize(), np.uint8).copy()


def restore_game(ale: Any, state: Array) -> None:
    """Put an emulator with the same game into a captured state, in place."""
    from ale_py import ALEState

    ale.restoreState(ALEState(np.asarray(state, np.uint8).tobytes()))


def limit(env: GymEnv) -> int:
    """Return the actions after which the emulator has shown as many frames as an episode may have; 0 for no limit.

    Frames that open an episode, idle or with FIRE, count too, so it can end a few actions sooner.
    """
    game: Any = env.unwrapped
    skip = game._frameskip
    frames: int = skip if isinstance(skip, int) else skip[0]  # the fewest, if it is random
    while isinstance(env, gymnasium.Wrapper):
        frames *= env.frame_skip if isinstance(env, AtariPreprocessing) else 1
        env = env.env
    max_frames: int = game.ale.getInt(FRAMES)
    return ceil(max_frames / frames)


@dataclass(frozen=True)
class Preprocessing:
    """DQN's preprocessing of frames (Mnih et al., 2015), as wrappers around one game.

    Attributes:
        noop_max: maximum number of idle frames at the start of an episode; 0 for none.
        fire: press FIRE when an episode or a life starts, in games that wait for it.
        frame_skip: frames per action; the last two are seen as their maximum.
        screen_size: width and height in pixels; 0 leaves the screen unchanged.
        grayscale: one channel, without an axis, instead of three.
        sticky: the probability that a frame repeats the last action; None takes the id's.
    """

    noop_max: int = 30
    fire: bool = True
    frame_skip: int = 4
    screen_size: int = 84
    grayscale: bool = True
    sticky: float | None = None

    def __call__(self, env: GymEnv) -> GymEnv:
        """Return the game inside these wrappers.

        Raises:
            UsageError: it is not an Atari game. MissingPackage: OpenCV is not installed.
        """
        game: Any = env.unwrapped
        if f"{type(getattr(game, 'ale', None)).__module__}.ALEInterface" != INTERFACE:
            raise UsageError(
                f"atari: {type(game).__name__} is not an Atari game; leave the wrapper out: --wrap none"
            )
        # One frame at a time. Its screen is read by the wrapper, so the game gives its 128 bytes of memory, which
        # saves a fifth of a step. Set here, since a new game takes 90 ms to load.
        game._frameskip = 1
        game._obs_type = "ram"
        sticky = game.ale.getFloat(STICKY) if self.sticky is None else self.sticky
        # The emulator applies this at its next seeded reset; from then on only the wrapper repeats actions.
        game.ale.setFloat(STICKY, 0.0)
        env = self._preprocess(StickyAction(env, sticky) if sticky else env)
        return (
            FireStart(env)
            if self.fire and "FIRE" in game.get_action_meanings()[FIRE : FIRE + 1]
            else env
        )

    def _preprocess(self, env: GymEnv) -> GymEnv:
        try:
            return AtariPreprocessing(
                env,
                self.noop_max,
                self.frame_skip,
                self.screen_size or SCREEN,
                grayscale_obs=self.grayscale,
            )
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingPackage(
                "the wrapper atari needs OpenCV; install it: python -m pip install 'rlplug-envs[atari]'"
            ) from error


class FireStart(GymWrapper):
    """Presses FIRE when an episode or a life starts: games such as Breakout wait for it with the ball."""

    def __init__(self, env: GymEnv) -> None:
        super().__init__(env)
        self.lives = 0

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, object] | None = None,
    ) -> tuple[object, dict[str, object]]:
        self.env.reset(seed=seed, options=options)
        obs, _, terminated, truncated, info = self.env.step(FIRE)
        if terminated or truncated:
            obs, info = self.env.reset(options=options)
        self.lives = info["lives"]
        return obs, info

    def step(
        self,
        action: object,
    ) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if info["lives"] < self.lives and not (terminated or truncated):
            obs, fire_reward, terminated, truncated, info = self.env.step(FIRE)
            reward = float(reward) + float(fire_reward)
        self.lives = info["lives"]
        return obs, reward, terminated, truncated, info

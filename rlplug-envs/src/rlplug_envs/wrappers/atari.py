"""`Atari`: DQN's preprocessing; each part can be turned off."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlplug_core.config.options import Config, Count, Fraction, Natural
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_envs.families.ale import Preprocessing
from rlplug_envs.wrappers.frames import FrameStack, FrameStackConfig
from rlplug_envs.wrappers.lives import EpisodicLife
from rlplug_envs.wrappers.rewards import ClipReward, ClipRewardConfig


@dataclass(frozen=True)
class AtariConfig(Config):
    noop_max: Natural = 30  # maximum number of idle frames at the start of an episode; 0 for none
    fire: bool = True  # press FIRE when an episode or a life starts, in games that wait for it
    # frames per action, the last two seen as their maximum; 1 for every frame
    frame_skip: Count = 4
    screen_size: Natural = 84  # width and height in pixels; 0 leaves the screen unchanged
    grayscale: bool = True  # one channel instead of three
    frames: Count = 4  # number of observations that an agent sees at once; 1 for only the last
    episodic_life: bool = True  # a lost life ends an episode for the learner, only in training
    clip_reward: bool = True  # rewards from -1 to 1, only in training
    # probability that the emulator repeats an action; none keeps the id's, 0.25 for v5
    sticky: Fraction | None = None


class Atari(Transform):
    """Atari games as DQN played them (Mnih et al., 2015; sticky actions: Machado et al., 2018, arXiv:1709.06009).

    Observations are those of `gymnasium.wrappers.AtariPreprocessing`, stacked. Reported returns are scores of whole
    games; only the learner's rewards are clipped.
    """

    Config = AtariConfig

    def __init__(self, env: Env, config: AtariConfig) -> None:
        env = complete(env).inside(
            Preprocessing(
                noop_max=config.noop_max,
                fire=config.fire,
                frame_skip=config.frame_skip,
                screen_size=config.screen_size,
                grayscale=config.grayscale,
                sticky=config.sticky,
            )
        )
        if config.episodic_life:
            env = EpisodicLife(env)
        if config.frames > 1:
            env = FrameStack(env, FrameStackConfig(config.frames))
        if config.clip_reward:
            env = ClipReward(env, ClipRewardConfig())
        super().__init__(env)

    @staticmethod
    def in_evaluation(config: AtariConfig) -> AtariConfig:
        """Return options for whole games with their own scores."""
        return replace(config, episodic_life=False, clip_reward=False)

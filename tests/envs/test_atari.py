"""Atari games: the reference wrapper's frames, lives and rewards for the learner alone, and state that continues."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, StickyAction

from rlplug_core.errors import UsageError
from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env
from rlplug_core.types import Array, Timestep
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.rows import row_seed
from tests.cli.warm import Fork
from tests.envs.continuing import continued_afresh

pytest.importorskip("ale_py", reason="the extra rlplug-envs[atari] is not installed")
pytest.importorskip("cv2", reason="the extra rlplug-envs[atari] is not installed")

GAMES = ("Breakout", "Pong", "SpaceInvaders", "Seaquest")
#: Steps in which frames are compared; 1,000 take half a minute.
STEPS = int(os.environ.get("RLPLUG_ATARI_STEPS", "100"))


def atari(game: str, options: str = "", training: bool = True, num_envs: int = 1) -> Env:
    words = f"atari:{options}" if options else "atari"
    return wrap_env(Gymnasium().make(f"ALE/{game}-v5", num_envs), [WrapperSpec.parse(words)], training)


def reference(game: str) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    env = AtariPreprocessing(env)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def actions(env: Env, steps: int) -> Array:
    return np.random.default_rng(0).integers(env.spec.action.n, size=(steps, env.spec.num_envs))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "game", [pytest.param(game, marks=() if game in ("Breakout", "Pong") else pytest.mark.slow) for game in GAMES]
)
def test_frames_rewards_and_ends_are_those_of_the_reference_wrapper(game: str) -> None:
    env, other = atari(game, "fire=false,sticky=0", training=False), reference(game)
    now, (seen, _) = env.reset(3), other.reset(seed=row_seed(3, 0))
    for action in actions(env, STEPS):
        assert np.array_equal(now.obs[0], seen)
        now, (seen, reward, terminated, truncated, _) = env.step(action), other.step(int(action[0]))
        assert (now.reward[0], now.terminated[0], now.truncated[0]) == (reward, terminated, truncated)
        assert np.array_equal(now.final_obs[0], seen)
        if terminated or truncated:
            seen, _ = other.reset()


def test_a_lost_life_ends_an_episode_for_the_learner_and_clipping_changes_no_score() -> None:
    """The same play, as a learner and as an evaluation see it."""
    learner, judge = (atari("SpaceInvaders", training=training) for training in (True, False))
    steps, deaths, ends = played(learner), 0, 0
    for one, other in zip(steps, played(judge), strict=True):
        assert one.episodes == other.episodes
        assert np.array_equal(one.reward, np.clip(other.reward, -1, 1))
        lost = bool(one.terminated[0]) and not other.terminated[0]
        deaths, ends = deaths + lost, ends + len(one.episodes)
        assert one.is_first[0] == (lost or other.is_first[0])
        assert one.ended == one.is_first[0]
        if lost:
            assert (one.obs[0] == one.obs[0][-1]).all(), "a new life begins with a stack of its own"
            assert np.array_equal(one.final_obs[0], other.obs[0])
    assert deaths >= 2 * ends > 0
    assert max(float(other.reward[0]) for other in played(judge)) > 1


def played(env: Env) -> list[Timestep]:
    env.reset(1)
    return [copied(env.step(action)) for action in actions(env, 650)]


def copied(now: Timestep) -> Timestep:
    obs, final, reward = now.obs.copy(), now.final_obs.copy(), now.reward.copy()
    return Timestep(
        obs, final, reward, now.terminated, now.truncated, now.is_first, now.valid, now.episodes, now.ended, now.count
    )


def test_fire_opens_episodes_and_lives_where_there_is_one() -> None:
    """Without FIRE, Breakout keeps the ball, and the last of its five lives is never lost."""
    idle = np.zeros(1, np.int64)
    for fire, ended in (("fire=true", True), ("fire=false", False)):
        env = atari("Breakout", f"{fire},sticky=0")
        env.reset(0)
        assert any(env.step(idle).episodes for _ in range(160)) is ended
    env = atari("Freeway", "frames=1,episodic_life=false,clip_reward=false")
    assert isinstance(env.env.envs[0], AtariPreprocessing), "there is no FIRE to press"  # type: ignore[attr-defined]


def test_sticky_actions_are_gymnasiums_with_the_chance_of_a_quarter() -> None:
    env = atari("Freeway", "noop_max=0,frames=1")
    game = env.env.env.env.envs[0].env  # type: ignore[attr-defined]
    assert isinstance(game, StickyAction)
    assert game.repeat_action_probability == 0.25
    assert game.unwrapped.ale.getFloat("repeat_action_probability") == 0  # type: ignore[attr-defined]


def test_each_part_can_be_turned_off() -> None:
    off = "noop_max=0,fire=false,frame_skip=1,screen_size=0,grayscale=false,frames=1,episodic_life=false"
    env = atari("Breakout", f"{off},clip_reward=false,sticky=0")
    plain = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)
    now, (seen, _) = env.reset(3), plain.reset(seed=row_seed(3, 0))
    for action in actions(env, 50):
        assert np.array_equal(now.obs[0], seen)
        now, (seen, reward, *_) = env.step(action), plain.step(int(action[0]))
        assert now.reward[0] == reward


def test_games_continue_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    """With sticky actions, and over the ends of games."""
    told = continued_afresh(fork, [("ALE/Breakout-v5 atari", 2), ("ALE/Pong-v5 atari:sticky=0,frames=1", 1)], tmp_path)
    assert told["ALE/Breakout-v5 atari_2"][1] > 0


def test_the_emulators_own_sticky_actions_are_no_state_of_ours() -> None:
    """It does not say which action it would repeat: an emulator that did something else before goes on differently."""
    env = Gymnasium().make("ALE/Breakout-v5", 1)
    assert "repeats an action that it does not expose; --wrap atari repeats actions itself" in env.spec.inexact


def test_atari_ids_get_the_recipe_unless_told_otherwise() -> None:
    assert preset("some.module:Algorithm", "ALE/Pong-v5")["wrap"] == ["atari"]
    assert "wrap" not in preset("some.module:Algorithm", "CartPole-v1")


def test_unsuitable_recipes_are_refused() -> None:
    with pytest.raises(UsageError, match="CartPoleEnv is not an Atari game; leave the wrapper out"):
        wrap_env(Gymnasium().make("CartPole-v1", 1), [WrapperSpec.parse("atari")])
    with pytest.raises(UsageError, match="put it first"):
        wrap_env(Gymnasium().make("ALE/Pong-v5", 1), [WrapperSpec.parse("clip-reward"), WrapperSpec.parse("atari")])
    env = wrap_env(Gymnasium().make("CartPole-v1", 1), [WrapperSpec.parse("episodic-life")])
    env.reset(0)
    with pytest.raises(UsageError, match=r"has no info\['lives'\]"):
        env.step(np.zeros(1, np.int64))

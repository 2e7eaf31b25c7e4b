"""Atari games: frames of the reference wrapper, lives and clipped rewards only for the learner, exact resume."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
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
from tests.envs.continuing import continue_in_new_process

pytest.importorskip("ale_py", reason="the extra rlplug-envs[atari] is not installed")
pytest.importorskip("cv2", reason="the extra rlplug-envs[atari] is not installed")

GAMES = ("Breakout", "Pong", "SpaceInvaders", "Seaquest")
#: Number of compared frames; 1,000 take half a minute.
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
def test_frames_rewards_and_ends_match_the_reference_wrapper(game: str) -> None:
    env = atari(game, "fire=false,sticky=0", training=False)
    expected = reference(game)
    now = env.reset(3)
    obs, _ = expected.reset(seed=row_seed(3, 0))
    for action in actions(env, STEPS):
        assert np.array_equal(now.obs[0], obs)
        now = env.step(action)
        obs, reward, terminated, truncated, _ = expected.step(int(action[0]))
        assert (now.reward[0], now.terminated[0], now.truncated[0]) == (reward, terminated, truncated)
        assert np.array_equal(now.final_obs[0], obs)
        if terminated or truncated:
            obs, _ = expected.reset()


def test_lost_lives_and_clipping_affect_only_the_learner() -> None:
    """Play the same actions with the wrappers of training and of evaluation."""
    learner, evaluation = (atari("SpaceInvaders", training=training) for training in (True, False))
    steps = play(learner)
    deaths = 0
    ends = 0
    for trained, evaluated in zip(steps, play(evaluation), strict=True):
        assert trained.episodes == evaluated.episodes
        assert np.array_equal(trained.reward, np.clip(evaluated.reward, -1, 1))
        life_lost = bool(trained.terminated[0]) and not evaluated.terminated[0]
        deaths = deaths + life_lost
        ends = ends + len(trained.episodes)
        assert trained.is_first[0] == (life_lost or evaluated.is_first[0])
        assert trained.ended == trained.is_first[0]
        if life_lost:
            assert (trained.obs[0] == trained.obs[0][-1]).all(), "a new life starts with a new stack"
            assert np.array_equal(trained.final_obs[0], evaluated.obs[0])
    assert deaths >= 2 * ends > 0
    assert max(float(evaluated.reward[0]) for evaluated in play(evaluation)) > 1


def play(env: Env) -> list[Timestep]:
    env.reset(1)
    steps = []
    for action in actions(env, 650):
        now = env.step(action)
        steps.append(replace(now, obs=now.obs.copy(), final_obs=now.final_obs.copy(), reward=now.reward.copy()))
    return steps


def test_fire_starts_episodes_and_lives_if_the_game_has_it() -> None:
    """Without FIRE, Breakout never serves the ball, so its episodes do not end."""
    idle = np.zeros(1, np.int64)
    for fire, ended in (("fire=true", True), ("fire=false", False)):
        env = atari("Breakout", f"{fire},sticky=0")
        env.reset(0)
        assert any(env.step(idle).episodes for _ in range(160)) is ended
    env = atari("Freeway", "frames=1,episodic_life=false,clip_reward=false")
    assert isinstance(env.env.envs[0], AtariPreprocessing), "Freeway does not have FIRE"  # type: ignore[attr-defined]


def test_sticky_actions_are_gymnasiums_with_probability_0_25() -> None:
    env = atari("Freeway", "noop_max=0,frames=1")
    game = env.env.env.env.envs[0].env  # type: ignore[attr-defined]
    assert isinstance(game, StickyAction)
    assert game.repeat_action_probability == 0.25
    assert game.unwrapped.ale.getFloat("repeat_action_probability") == 0  # type: ignore[attr-defined]


def test_each_part_can_be_disabled() -> None:
    off = "noop_max=0,fire=false,frame_skip=1,screen_size=0,grayscale=false,frames=1,episodic_life=false"
    env = atari("Breakout", f"{off},clip_reward=false,sticky=0")
    plain = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)
    now = env.reset(3)
    obs, _ = plain.reset(seed=row_seed(3, 0))
    for action in actions(env, 50):
        assert np.array_equal(now.obs[0], obs)
        now = env.step(action)
        obs, reward, *_ = plain.step(int(action[0]))
        assert now.reward[0] == reward


def test_games_continue_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    """With and without sticky actions, and across the ends of games."""
    results = continue_in_new_process(
        fork, [("ALE/Breakout-v5 atari", 2), ("ALE/Pong-v5 atari:sticky=0,frames=1", 1)], tmp_path
    )
    assert results["ALE/Breakout-v5 atari_2"][1] > 0


def test_sticky_actions_of_the_emulator_are_inexact() -> None:
    """The emulator does not expose the action that it would repeat."""
    env = Gymnasium().make("ALE/Breakout-v5", 1)
    assert "repeats an action that it does not expose; --wrap atari repeats actions itself" in env.spec.inexact


def test_preset_wraps_atari_ids() -> None:
    assert preset("some.module:Algorithm", "ALE/Pong-v5")["wrap"] == ["atari"]
    assert "wrap" not in preset("some.module:Algorithm", "CartPole-v1")


def test_atari_wrapper_rejects_unsuitable_environments() -> None:
    with pytest.raises(UsageError, match="CartPoleEnv is not an Atari game; leave the wrapper out"):
        wrap_env(Gymnasium().make("CartPole-v1", 1), [WrapperSpec.parse("atari")])
    with pytest.raises(UsageError, match="put it first"):
        wrap_env(Gymnasium().make("ALE/Pong-v5", 1), [WrapperSpec.parse("clip-reward"), WrapperSpec.parse("atari")])
    env = wrap_env(Gymnasium().make("CartPole-v1", 1), [WrapperSpec.parse("episodic-life")])
    env.reset(0)
    with pytest.raises(UsageError, match=r"has no info\['lives'\]"):
        env.step(np.zeros(1, np.int64))

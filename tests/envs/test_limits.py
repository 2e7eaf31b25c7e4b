"""Time limits inside other packages: idle episodes are truncated after `spec.limit` steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env
from rlplug_core.types import Array
from rlplug_envs.families.classic import Gymnasium


def idle(env: Env, action: Array) -> list[tuple[int, bool]]:
    """The lengths of the first two episodes of one repeated action, and whether each was truncated."""
    env.reset(0)
    ends: list[tuple[int, bool]] = []
    while len(ends) < 2:
        now = env.step(action)
        ends += [(episode.length, bool(now.truncated[episode.row])) for episode in now.episodes]
    env.close()
    return ends


def assert_holds(env: Env, action: Array, limit: int) -> None:
    assert env.spec.limit == limit
    assert idle(env, action) == [(limit, True)] * 2


@pytest.mark.parametrize(("arguments", "limit"), [({}, 256), ({"max_steps": 9}, 9), ({"max_episode_steps": 7}, 7)])
def test_minigrid_has_its_limit(arguments: dict[str, object], limit: int) -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    assert_holds(Gymnasium(arguments).make("MiniGrid-Empty-8x8-v0", 1), np.array([6]), limit)


def test_babyai_level_with_changing_limits_has_no_limit() -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    levels = Gymnasium().make("BabyAI-MiniBossLevel-v0", 1)
    assert levels.spec.limit == 0
    assert len({length for length, _ in (idle(levels, np.array([6])) + idle(levels, np.array([6])))}) > 1
    assert Gymnasium({"max_steps": 9}).make("BabyAI-GoToObj-v0", 1).spec.limit == 9


@pytest.mark.parametrize(
    ("arguments", "wrap", "limit"),
    [
        ({}, "", 101),
        ({"frameskip": 1}, "", 402),
        ({}, "atari:noop_max=0,fire=false", 101),
        ({}, "atari:noop_max=0,fire=false,frame_skip=1", 402),
    ],
)
def test_atari_limit_counts_frames(arguments: dict[str, object], wrap: str, limit: int) -> None:
    pytest.importorskip("cv2", reason="the extra rlplug-envs[atari] is not installed")
    pytest.importorskip("ale_py", reason="the extra rlplug-envs[atari] is not installed")
    games = Gymnasium({"max_num_frames_per_episode": 402, **arguments}).make("ALE/Pong-v5", 1)
    assert_holds(wrap_env(games, [WrapperSpec.parse(wrap)] if wrap else []), np.array([0]), limit)


def test_default_atari_limit_is_half_an_hour() -> None:
    pytest.importorskip("cv2", reason="the extra rlplug-envs[atari] is not installed")
    pytest.importorskip("ale_py", reason="the extra rlplug-envs[atari] is not installed")
    bare = Gymnasium().make("ALE/Pong-v5", 1)
    as_dqn = [WrapperSpec.parse("atari")]
    assert bare.spec.limit == wrap_env(bare, as_dqn).spec.limit == 27_000
    short = wrap_env(Gymnasium({"max_num_frames_per_episode": 400}).make("ALE/Breakout-v5", 1), as_dqn)
    assert short.spec.limit == 100
    assert all(90 <= length < 100 and cut for length, cut in idle(short, np.array([0])))


@pytest.mark.parametrize(
    ("id", "config", "limit"),
    [
        ("parking-v0", {"duration": 1, "policy_frequency": 15}, 16),  # fifteen times 1/15 is less than 1
        ("parking-v0", {"duration": 2, "policy_frequency": 5}, 11),  # and so is ten times 0.2 than 2
        ("racetrack-v0", {"duration": 1, "other_vehicles": 0}, 5),
    ],
)
@pytest.mark.filterwarnings("ignore")  # of the package about itself
def test_highway_limit_counts_seconds(id: str, config: dict[str, Any], limit: int) -> None:
    pytest.importorskip("highway_env")
    env = Gymnasium({"config": config}).make(id, 1)
    assert_holds(env, np.zeros((1, *env.spec.action.shape), np.float32), limit)  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore")
def test_road_that_ignores_duration_has_no_limit() -> None:
    pytest.importorskip("highway_env")
    assert Gymnasium({"config": {"duration": 2}}).make("merge-v0", 1).spec.limit == 0


@pytest.mark.filterwarnings("ignore")
def test_dm_control_has_its_limit() -> None:
    pytest.importorskip("shimmy", reason="the extra rlplug-envs[dm-control] is not installed")
    assert_holds(Gymnasium().make("dm_control/cartpole-balance-v0", 1), np.zeros((1, 1), np.float32), 1000)

"""EnvPool environments: one seed per row, the same transitions as Gymnasium and EnvPool, and correct episodes."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from rlplug_core.errors import BadEnv, MissingPackage, UnknownEnv, UsageError
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.families import families
from rlplug_core.protocols import Env
from rlplug_core.types import Episode, Timestep
from rlplug_envs.families.envpool import EnvPool, Pool
from rlplug_envs.families.envpool_arrays import COPIES
from rlplug_envs.rows import row_seed
from rlplug_envs.wrappers.lives import EpisodicLife
from rlplug_envs.wrappers.time import TimeLimit, TimeLimitConfig

needs = pytest.mark.skipif(find_spec("envpool") is None, reason="the extra rlplug-envs[envpool] is not installed")


def build(name: str, num_envs: int = 2, **arguments: object) -> Env:
    return EnvPool(arguments).make(f"envpool:{name}", num_envs)


def walk(env: Env, seed: int, steps: int = 60) -> list[Any]:
    """Observations, rewards and ends from a seed; a row's actions do not depend on the number of rows."""
    space = env.spec.action
    rng = np.random.default_rng(5)
    now = env.reset(seed)
    arrays = []
    for _ in range(steps):
        arrays.append((now.obs.copy(), now.reward.copy(), now.terminated.copy()))
        actions = rng.uniform(-1, 1, (8, *(space.shape or (1,))))[: env.spec.num_envs]
        now = env.step(actions if space.shape else (actions[:, 0] > 0).astype(np.int64))
    return [np.stack(part) for part in zip(*arrays, strict=True)]


@needs
@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5"])
def test_seed_of_a_row_does_not_depend_on_rows_and_threads(name: str) -> None:
    env, wide = build(name, 3, num_threads=1), build(name, 5, num_threads=2)
    first = walk(env, 7)
    again = walk(env, 7)
    wider = walk(wide, 7)
    other_seed = walk(wide, 8)
    for one, two, three, four in zip(first, again, wider, other_seed, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three[:, :3])
        assert (name, one.dtype) == ("CartPole-v1", np.float32) or one.dtype == bool or (one != four[:, :3]).any()
    assert (first[0][0] != other_seed[0][0, :3]).any()
    assert (first[0][0, 0] != first[0][0, 1]).any()


@needs
def test_cartpole_transitions_match_gymnasium() -> None:
    """Also the last transition of an episode."""
    env: Any = build("CartPole-v1", 3)
    truth: Any = gymnasium.make("CartPole-v1").unwrapped
    truth.reset(seed=0)
    rng = np.random.default_rng(0)
    now = env.reset(3)
    lengths = np.zeros(3, np.int64)
    ended = list[Episode]()
    for _ in range(300):
        before = now.obs.copy()
        action = rng.integers(0, 2, 3)
        now = env.step(action)
        for row in range(3):
            if not now.valid[row]:
                assert (now.is_first[row], now.reward[row]) == (True, 0)
                assert not now.terminated[row]
                continue
            truth.state = before[row].astype(np.float64)
            truth.steps_beyond_terminated = None
            obs, reward, terminated, _, _ = truth.step(int(action[row]))
            np.testing.assert_allclose(now.final_obs[row], obs, atol=1e-5)
            assert (now.reward[row], now.terminated[row], now.truncated[row]) == (reward, terminated, False)
            lengths[row] += 1
        for episode in now.episodes:
            assert (episode.length, episode.total) == (lengths[episode.row], lengths[episode.row])
            lengths[episode.row] = 0
        ended += now.episodes
    assert len(ended) > 20


@needs
@pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")
@pytest.mark.parametrize("name", ["CartPole-v1", "HalfCheetah-v5", "Breakout-v5", "Snake-v1"])
def test_steps_match_envpool(name: str) -> None:
    """Snake has observations of several parts."""
    import envpool

    settings: dict[str, Any] = {"max_episode_steps": 25, "num_threads": 2}
    pool = Pool(f"envpool:{name}", 3, settings)
    obs, info = pool.reset(seed=4)
    seeds = [row_seed(4, row) for row in range(3)]
    truth = envpool.make_gymnasium(name, num_envs=3, env_seed=seeds, **settings)
    expected_obs, expected_info = truth.reset()
    check(obs, info, expected_obs, expected_info)
    pool.single_action_space.seed(0)
    for _ in range(80):
        actions = np.stack([pool.single_action_space.sample() for _ in range(3)])
        obs, *results, info = pool.step(actions)
        expected_obs, *expected, expected_info = truth.step(actions)
        check(obs, info, expected_obs, expected_info)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted, strict=True)
    pool.close()
    truth.close()


def leaves(tree: Any) -> list[Any]:
    return [leaf for key in sorted(tree) for leaf in leaves(tree[key])] if isinstance(tree, dict) else [tree]


def check(obs: Any, info: dict[str, Any], expected_obs: Any, expected_info: dict[str, Any]) -> None:
    """Observation and info are those of EnvPool, without the entries of COPIES."""
    expected_info = {key: value for key, value in expected_info.items() if key not in COPIES}
    assert [*info] == [*expected_info]
    for part, wanted in zip(
        *(map(leaves, ({"obs": obs, **info}, {"obs": expected_obs, **expected_info}))), strict=True
    ):
        np.testing.assert_array_equal(part, wanted, strict=True)


def lengths(env: Env, steps: int) -> tuple[set[int], list[Timestep]]:
    """The lengths of the episodes of some steps, and the steps that ended one."""
    env.reset(0)
    steps_taken = [env.step(np.arange(2) % 2) for _ in range(steps)]
    ends = [now for now in steps_taken if now.episodes]
    return {episode.length for now in ends for episode in now.episodes}, ends


@needs
def test_time_limits_truncate() -> None:
    limited = build("CartPole-v1", max_episode_steps=5)
    assert limited.spec.limit == 5
    for env in (limited, TimeLimit(build("CartPole-v1"), TimeLimitConfig(steps=5))):
        found, ends = lengths(env, 20)
        assert found == {5}
        assert all(now.truncated.all() and not now.terminated.any() for now in ends)


def test_shortest_time_limit_holds() -> None:
    pool: Any = object.__new__(Pool)  # works without the package
    pool.spec = EnvSpec("CartPole-v1", max_episode_steps=500)
    pool._arguments = {}
    for steps, least in ((100, 100), (200, 100), (7, 7)):
        pool.limit(steps)
        assert pool._arguments == {"max_episode_steps": least}


@needs
def test_lost_lives_do_not_end_the_scored_episode() -> None:
    env = EpisodicLife(build("Breakout-v5", 1))
    assert (env.spec.obs.shape, env.spec.obs.dtype) == ((4, 84, 84), np.uint8)
    env.reset(1)
    lives = 0
    episodes = list[Episode]()
    while not episodes:
        now = env.step(np.array([1]))  # FIRE serves the next ball
        lives += int(now.terminated[0])
        episodes += now.episodes
    assert lives == 5
    assert episodes[0].info["lives"] == 0
    assert not {*COPIES} & {*episodes[0].info}


@needs
def test_envpool_is_inexact_and_has_threads() -> None:
    env = build("CartPole-v1", 4, num_threads=3)
    assert complete(env).threads == 3
    assert env.spec.inexact == "envpool:CartPole-v1: EnvPool does not expose its state"
    assert env.state_dict() == {"inexact": env.spec.inexact}
    with pytest.raises(BadEnv, match="was not saved"):
        env.load_state_dict(env.state_dict())


@needs
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Pong-v5", {"reward_clip": True}, "reward_clip would change the returns .* --wrap clip-reward instead"),
        ("Pong-v5", {"episodic_life": True}, "type --wrap episodic-life instead"),
        ("Pong-v5", {"stack_nun": 1}, "takes no argument 'stack_nun'; did you mean 'stack_num'"),
        ("CartPole-v1", {"seed": 1}, r"takes no argument 'seed' .*it takes max_episode_steps, num_threads"),
        ("HalfCheetah-v5", {"frame_skip": "five"}, "cannot be made by EnvPool with frame_skip five: "),
    ],
)
def test_unsupported_arguments_raise(name: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(name, **arguments)


@needs
def test_environments_of_several_players_raise() -> None:
    with pytest.raises(BadEnv, match="envpool:IntersectionMultiAgent-v0: several players share an environment"):
        build("IntersectionMultiAgent-v0").reset(0)


@needs
def test_unknown_id_suggests_the_nearest() -> None:
    with pytest.raises(UnknownEnv, match="'envpool:CartPol-v1'; did you mean 'envpool:CartPole-v1'"):
        build("CartPol-v1")


def test_missing_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingPackage, match=r"install it: python -m pip install 'rlplug-envs\[envpool\]'"):
        build("CartPole-v1")


@needs
def test_missing_system_library_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    import envpool

    def fails(*words: object, **settings: object) -> None:
        raise ImportError("EnvPool Procgen requires the system Qt 5 runtime")

    monkeypatch.setattr(envpool, "make_spec", fails)
    with pytest.raises(MissingPackage, match="'envpool:CartPole-v1' cannot be made here: EnvPool Procgen requires"):
        build("CartPole-v1")


@needs
def test_listed_ids_are_those_of_envpool() -> None:
    import envpool

    family = next(family for family in families() if family.name == "envpool")
    assert {id.removeprefix("envpool:") for id in family.ids} - {*envpool.list_all_envs()} == {"*"}

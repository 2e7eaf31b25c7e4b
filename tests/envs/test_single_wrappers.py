"""Gymnasium wrappers by name, around each single environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rlplug_core.errors import BadConfig, PluginError, UsageError
from rlplug_core.plugins.single_wrappers import SingleWrapper
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.protocols import Env
from rlplug_envs.families.classic import HELD, Gymnasium
from rlplug_envs.rows import row_seed
from rlplug_envs.vector import SerialEnvs
from tests.tables import for_each


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    """Doubles rewards."""

    def reward(self, reward: Any) -> Any:
        return 2 * reward


class Scaled(gymnasium.wrappers.NormalizeObservation[Any, Any, Any]):
    """A wrapper that learns."""


def env_of(id: str, *words: str, rows: int = 2) -> Env:
    return wrap_env(Gymnasium().make(id, rows), map(WrapperSpec.parse, words))


@pytest.mark.filterwarnings("ignore:.*precision lowered")  # Gymnasium warns about its own wrapper
def test_gymnasium_wrapper_by_name() -> None:
    env = env_of("Pendulum-v1", "gymnasium:RescaleAction:min_action=-0.5,max_action=0.5")
    other = gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -0.5, 0.5)
    assert env.spec.inexact == ""
    now = env.reset(3)
    obs, _ = other.reset(seed=row_seed(3, 0))
    for _ in range(5):
        assert np.array_equal(now.obs[0], obs)
        now = env.step(np.full((2, 1), 0.5, np.float32))
        obs, reward, *_ = other.step(np.array([0.25], np.float32))
        assert now.reward[0] == np.float32(reward)


def test_own_wrapper_and_several_wrappers() -> None:
    stack = "gymnasium:FrameStackObservation:stack_size=2"
    env = env_of("CartPole-v1", f"{__file__}:Doubled", stack, "clip-reward:high=3")
    assert env.spec.obs.shape == (2, 4)
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).reward.tolist() == [2, 2]
    assert WrapperSpec.parse(f"{__file__}:Doubled").words == f"{__file__}:Doubled"


def shift_rewards(env: Any, by: float = 0.0) -> Any:
    """A function that wraps an environment."""
    return gymnasium.wrappers.TransformReward(env, lambda reward: reward + by)


def returns_nothing(env: Any) -> None:
    """A function that does not return its environment."""


def test_function_wraps_each_environment() -> None:
    env = env_of("CartPole-v1", f"{__file__}:shift_rewards:by=2", "frame-stack:frames=2")
    assert env.spec.obs.shape == (8,)
    env.reset(0)
    assert env.step(np.zeros(2, np.int64)).reward.tolist() == [3, 3]
    assert WrapperSpec.parse(f"{__file__}:shift_rewards").words == f"{__file__}:shift_rewards"
    with pytest.raises(PluginError, match=r"returns_nothing' returned None; return a gymnasium.Env"):
        env_of("CartPole-v1", f"{__file__}:returns_nothing")


class Owned(CartPoleEnv):
    """An environment of the caller; counts calls of `close`."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("words", ["action-repeat", f"{__file__}:Doubled"])
def test_held_environment_stays_open_inside_a_wrapper(words: str) -> None:
    own = Owned()
    env: Any = Gymnasium().hold(own, "Yours")
    env.limit(6)
    env = wrap_env(env, [WrapperSpec.parse(words)])
    assert env.spec.inexact == HELD
    env.reset(0)
    ends = [env.step(np.arange(1)).ended for _ in range(6)]
    assert ends.index(True) == (2 if words == "action-repeat" else 5)
    env.close()
    assert own.closed == 0


class Maker:
    """Makes environments; all makers have the same `repr`."""

    def __init__(self, kind: type[gymnasium.Env[Any, Any]]) -> None:
        self.kind = kind

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return self.kind()

    def __repr__(self) -> str:
        return "Maker"


class Counting(CartPoleEnv):
    """Its state is a class attribute, which cannot be captured."""

    steps = iter(range(10**9))

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward + next(self.steps), *rest


def test_makers_with_one_name_are_tested_separately() -> None:
    rows = [SerialEnvs(Maker(kind), 1, "Yours") for kind in (CartPoleEnv, Counting)]
    assert [bool(env.inside(Doubled).spec.inexact) for env in rows] == [False, True]


@pytest.mark.parametrize(
    ("words", "limit"),
    [("action-repeat:times=3", 167), ("gymnasium:TimeAwareObservation", 500), (f"{__file__}:Doubled", 500)],
)
def test_wrappers_work_with_many_cartpoles(words: str, limit: int) -> None:
    """Evaluations have one row per episode; without wrappers CartPole would use its native vector."""
    env = env_of("CartPole-v1", words, rows=12)
    assert (env.spec.num_envs, env.spec.limit, env.spec.inexact) == (12, limit, "")
    few = env_of("CartPole-v1", words)
    now, expected = env.reset(3), few.reset(3)
    assert np.array_equal(now.obs[:2], expected.obs)
    for _ in range(20):
        now = env.step(np.ones(12, np.int64))
        expected = few.step(np.ones(2, np.int64))
        assert np.array_equal(now.obs[:2], expected.obs)
        assert [episode for episode in now.episodes if episode.row < 2] == list(expected.episodes)
    env.close()


def test_many_wrapped_cartpoles_keep_their_limit() -> None:
    many: Any = Gymnasium().make("CartPole-v1", 12)
    many.limit(5)
    env = many.inside(Doubled)
    env.reset(0)
    assert [env.step(np.arange(12) % 2).ended for _ in range(5)] == [False] * 4 + [True]


@pytest.mark.parametrize("native", [False, True])
def test_returns_are_summed_below_wrappers(native: bool) -> None:
    """Agents get the rewards of the wrappers."""
    rows = 12 if native else 2
    words = ("gymnasium:TimeAwareObservation", f"{__file__}:Doubled", "action-repeat:times=2")
    env: Any = env_of("CartPole-v1", *words, rows=rows)
    for seed in (0, 1):
        env.reset(seed)
        assert env.step(np.ones(rows, np.int64)).reward.tolist() == [4] * rows
        assert env.running_returns().tolist() == [2] * rows
        lengths = {}
        while not lengths:
            now = env.step(np.ones(rows, np.int64))
            lengths = {episode.row: (episode.length, episode.total) for episode in now.episodes}
        assert all(total in (2 * length, 2 * length - 1) for length, total in lengths.values())
        assert [env.running_returns()[row] for row in lengths] == [0] * len(lengths)


def test_returns_below_wrappers_resume() -> None:
    first, other = (env_of("CartPole-v1", f"{__file__}:Doubled") for _ in range(2))
    first.reset(0)
    for _ in range(5):
        first.step(np.ones(2, np.int64))
    state = first.state_dict()
    assert "Paid" not in repr(state)  # so states saved before returns were summed there still load
    other.load_state_dict(state)
    ends = [env.step(np.ones(2, np.int64)).episodes for _ in range(9) for env in (first, other)]
    assert [list(episodes) for episodes in ends[::2]] == [list(episodes) for episodes in ends[1::2]]
    assert all(episode.total == episode.length for found in ends for episode in found)
    assert any(ends)


def test_arguments_are_python_literals() -> None:
    words = "shape=(84,84),flag=true,name=abc,number=-1.5"
    keywords = SingleWrapper("gymnasium:ResizeObservation", words).keywords()
    assert keywords == {"shape": (84, 84), "flag": True, "name": "abc", "number": -1.5}


@for_each(
    "words, kind, message",
    [
        (
            ["gymnasium:RescaleActoin"],
            UsageError,
            "gymnasium.wrappers has no 'RescaleActoin'.*did you mean 'RescaleAction'",
        ),
        (["clip-reward", "gymnasium:ClipAction"], UsageError, "below rlplug's own wrappers: put it first"),
        (["gymnasium:ClipAction:wrong=1"], PluginError, "cannot be put around CartPole-v1: .*wrong"),
        (
            ["gymnasium:NormalizeReward:gamma=0.9"],
            UsageError,
            "^evaluations .*:NormalizeReward learns; .*--wrap normalize-obs .*--net.normalize-obs .*-reward",
        ),
        ([f"{__file__}:Scaled"], UsageError, "^evaluations and loaded policies would not get what .*Scaled learns; "),
        (["gymnasium:TransformReward"], PluginError, "give it: --wrap gymnasium:TransformReward:func=VALUE"),
        (
            ["gymnasium:RescaleObservation:min_obs=1"],
            PluginError,
            "'max_obs'; .*RescaleObservation:min_obs=1,max_obs=VALUE",
        ),
        (["gymnasium:vector"], UsageError, "is not a gymnasium.Wrapper and not a function"),
    ],
)
def test_unsupported_wrappers_raise(words: list[str], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        env_of("CartPole-v1", *words)


def test_learning_wrapper_inside_an_environment_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.wrappers.ClipAction(Scaled(gymnasium.make("Pendulum-v1")))

    for _ in range(2):
        Gymnasium().adopt(make, 2, "Mine")
        Gymnasium().hold(make(), "Yours")
    message = "holds Scaled, and evaluations and loaded policies would not get what it learns: leave it out"
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in lines] == [f"rlplug: {name} {message}" for name in ("Mine", "Yours")]
    Gymnasium().adopt(lambda: Doubled(gymnasium.make("Pendulum-v1")), 2, "Other")
    assert not capsys.readouterr().err


def test_argument_without_a_name_raises() -> None:
    with pytest.raises(BadConfig, match="'3' is not an argument; write name=value"):
        SingleWrapper("gymnasium:TimeLimit", "3").keywords()


@pytest.mark.parametrize(
    ("words", "limit", "steps"),
    [("action-repeat:times=3", 67, 67), ("gymnasium:MaxAndSkipObservation:skip=4", 200, 50)],
)
def test_time_limit_counts_steps_of_the_environment(words: str, limit: int, steps: int) -> None:
    """Pendulum's 200 steps are 66 times three and one of two; for other wrappers the limit is unchanged."""
    bare = Gymnasium().make("Pendulum-v1", 1)
    env = wrap_env(Gymnasium().make("Pendulum-v1", 1), [WrapperSpec.parse(words)])
    action = np.zeros((1, 1), np.float32)
    assert env.spec.limit == limit
    for seed in (0, 1):
        env.reset(seed)
        bare.reset(seed)
        episode = [env.step(action) for _ in range(steps)][-1].episodes[0]
        expected = [bare.step(action) for _ in range(200)][-1].episodes[0]
        assert (episode.total, episode.length) == (pytest.approx(expected.total, rel=1e-5), steps)

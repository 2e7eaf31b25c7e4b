"""Values that a dtype cannot hold raise errors: numpy would wrap or truncate them silently."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

from rlplug_core.errors import BadEnv
from rlplug_envs.adapter import Adapter
from rlplug_envs.agents import Agents
from rlplug_envs.games import Parallel
from rlplug_envs.raw_return import RawReturn
from rlplug_envs.spaces import allocate
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.watch import Watch

FLOATS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
WIDE = spaces.Box(-np.inf, np.inf, (2,), np.float64)
FRAMES = spaces.Box(0, 255, (2,), np.uint8)
BYTES = spaces.Box(-128, 127, (2,), np.int8)
WORDS = spaces.Box(0, 9, (2,), np.int32)
FLAGS = spaces.Box(0, 1, (2,), np.bool_)
SMALL = spaces.Discrete(100, dtype=np.int8)


class Gives(gymnasium.Env[Any, Any]):
    """Gives `good` in reset and first step, then `bad`; episodes have four steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any], good: Any, bad: Any, reward: Any = 1.0, info: Any = None) -> None:
        self.observation_space = space
        self.good = good
        self.bad = bad
        self.reward = reward
        self.info = {} if info is None else info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.age = 0
        return self.good, {}

    def step(self, action: Any) -> Any:
        self.age += 1
        late = self.age > 1
        reward, info = (self.reward, self.info) if late else (1.0, {})
        return self.bad if late else self.good, reward, self.age == 4, False, info


class Rows(VectorEnv[Any, Any, Any]):
    """A vector of two such environments; the first always gives `good`."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, env: Gives) -> None:
        self.env = env
        self.num_envs = 2
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, 2)
        self.action_space = spaces.MultiDiscrete([2, 2])

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        good, info = self.env.reset()
        return both(good, good), info

    def step(self, actions: Any) -> Any:
        value, reward, over, _, info = self.env.step(0)
        return both(self.env.good, value), [1.0, reward], [over] * 2, [False] * 2, info

    def close(self, **kwargs: Any) -> None:
        """There is nothing to close."""


def both(first: Any, second: Any) -> Any:
    """A batch of two observations."""
    if isinstance(first, dict):
        return {name: both(one, second[name]) for name, one in first.items()}
    return [first, second] if isinstance(first, list) else np.stack([first, second])


class Two(ParallelEnv[str, Any, int]):
    """A world of two agents; the first always gets `good`."""

    metadata = {"name": "two"}
    render_mode = None
    possible_agents = ["one", "other"]

    def __init__(self, env: Gives) -> None:
        self.env = env

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.env.observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.env.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = list(self.possible_agents)
        good, _ = self.env.reset()
        return dict.fromkeys(self.agents, good), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        value, reward, over, _, _ = self.env.step(0)
        obs = {"one": self.env.good, "other": value}
        rewards = {"one": 1.0, "other": reward}
        flags = dict.fromkeys(self.agents, over)
        names = list(self.agents)
        self.agents = [] if over else self.agents
        return obs, rewards, flags, dict.fromkeys(names, False), {name: {} for name in names}


def serial(env: Gives) -> Any:
    good = Gives(env.observation_space, env.good, env.good)
    return SerialEnvs(iter([good, env]).__next__, 2, "Gives", inexact="")


def vector(env: Gives) -> Any:
    return Adapter(lambda: Rows(env), "Gives", inexact="a test")


def agents(env: Gives) -> Any:
    return Agents(lambda: Parallel(Two(env)), 1, "Gives", "")


#: How messages name the second step of the second environment.
PLACES = {
    serial: "Gives, environment 1, step 2 of its episode: ",
    vector: "Gives, environment 1, step 2 of its episode: ",
    agents: "Gives, agent other, step 2 of its episode: ",
}
every = pytest.mark.parametrize("make", list(PLACES), ids=lambda make: make.__name__)


def error_of(env: Any) -> str:
    """The message of the error that the second step raises."""
    env.reset(0)
    env.step(np.zeros(2, np.int64))
    with pytest.raises(BadEnv) as raised:
        env.step(np.zeros(2, np.int64))
    return str(raised.value)


def bounds(low: int, high: int, dtype: str) -> str:
    return f"and {dtype}, the type of its observation space, has {low} to {high}; let observation_space hold all that"


@every
@pytest.mark.parametrize(
    ("space", "good", "bad", "message"),
    [
        (BYTES, np.zeros(2, np.int8), np.array([1, 300]), f"the observation holds 300, {bounds(-128, 127, 'int8')}"),
        (FRAMES, np.zeros(2, np.int64), np.array([-1, 3]), f"the observation holds -1, {bounds(0, 255, 'uint8')}"),
        (FLAGS, np.zeros(2, np.int8), np.array([0, 2], np.int8), f"the observation holds 2, {bounds(0, 1, 'bool')}"),
        (
            WORDS,
            np.zeros(2, np.int32),
            np.array([2**40 + 5, 1]),
            f"the observation holds {2**40 + 5}, {bounds(-(2**31), 2**31 - 1, 'int32')}",
        ),
        (FRAMES, [1, 2], [0.5, 1], "the observation holds 0.5, and its observation space has whole numbers; give one"),
        (SMALL, 3, 300, f"the observation is 300, {bounds(-128, 127, 'int8')}"),
        (SMALL, np.int64(3), 2.7, "the observation is 2.7, and its observation space has whole numbers; give one"),
        (
            spaces.Dict(a=FRAMES),
            {"a": np.zeros(2, np.uint8)},
            {"a": np.array([7, 256])},
            f"the observation 'a' holds 256, {bounds(0, 255, 'uint8')}",
        ),
    ],
)
def test_integers_outside_their_dtype_raise(make: Any, space: Any, good: Any, bad: Any, message: str) -> None:
    if make is vector and space is SMALL:  # its observations are one array
        good = np.int8(3)
        bad = np.int16(300)
        message = f"the observation holds 300, {bounds(-128, 127, 'int8')}"
    assert error_of(make(Gives(space, good, bad))).startswith(PLACES[make] + message)


@every
@pytest.mark.parametrize("nested", [False, True])
def test_floats_in_an_integer_space_raise(make: Any, nested: bool) -> None:
    """For example frames declared as bytes but scaled to [0, 1]; the first may be whole by chance."""
    space: Any = spaces.Dict(a=FRAMES) if nested else FRAMES
    good, bad = np.zeros(2, np.uint8), np.ones(2, np.float32)
    env = Gives(space, {"a": good} if nested else good, {"a": bad} if nested else bad)
    name = " 'a'" if nested else ""
    # The message names no row, because a batch has one dtype.
    place = "Gives: " if make is vector else PLACES[make]
    assert error_of(make(env)) == (
        f"{place}the observation{name} is an array of float32, its observation space says uint8; give uint8, or "
        "declare the space with the bounds and the dtype of these observations"
    )


@pytest.mark.parametrize("bad", [np.array(["1", "2"]), np.array([1, 2], object), np.array([1j, 2])], ids=str)
def test_non_numeric_observations_raise(bad: Any) -> None:
    message = error_of(serial(Gives(FLOATS, np.zeros(2, np.float32), bad)))
    assert message.startswith(
        f"{PLACES[serial]}the observation is an array of {bad.dtype}, its observation space says fl"
    )


@pytest.mark.parametrize(
    ("space", "bad", "message"),
    [
        (spaces.Discrete(3), 10**30, f"is {10**30}, its observation space says int64"),
        (spaces.Discrete(3), None, "is None, its observation space says int64"),
        (FLOATS, [[1], [2, 3]], "is not an array of numbers: "),
    ],
)
def test_observations_that_fit_no_array_raise(space: Any, bad: Any, message: str) -> None:
    good = 1 if space is not FLOATS else np.zeros(2, np.float32)
    assert error_of(serial(Gives(space, good, bad))).startswith(f"{PLACES[serial]}the observation {message}")


@every
@pytest.mark.parametrize(
    ("space", "good", "other"),
    [
        (FLOATS, np.array([0.1, 1e20]), np.array([3, 2**40 + 5])),
        (WIDE, np.array([0.1, -1e38]), np.array([0.5, 1], np.float16)),
        (FRAMES, np.array([1, 255]), np.array([True, False])),
        (FLAGS, np.array([1, 0], np.int8), np.array([True, True])),
        (spaces.Dict(a=WORDS), {"a": np.array([1, 2])}, {"a": np.array([1, 2], np.uint8)}),
        (spaces.Discrete(9), np.uint8(3), 4.0),
        (spaces.Box(-1, 1, (), np.float32), np.float64(0.1), 1),
        (FLOATS, [0.5, 1], [2, 3]),
    ],
)
def test_other_dtypes_are_accepted_if_values_fit(make: Any, space: Any, good: Any, other: Any) -> None:
    if make is vector and isinstance(space, spaces.Discrete):
        good = 3
        other = np.uint8(4)  # several floats are an array of floats
    env = make(Gives(space, good, other))
    env.reset(0)
    for _ in range(2):
        now = env.step(np.zeros(2, np.int64))

    def check(found: Any, given: Any) -> None:
        if isinstance(given, dict):
            return check(found["a"], given["a"])
        np.testing.assert_array_equal(found, np.asarray(given).astype(found.dtype))

    for row, given in enumerate([good, other]):
        check({"a": now.obs["a"][row]} if isinstance(now.obs, dict) else now.obs[row], given)


@every
@pytest.mark.parametrize(
    ("space", "good", "bad", "message"),
    [
        (FLOATS, np.zeros(2, np.float32), np.array([0, np.inf], np.float32), "an observation is infinite (inf); give"),
        (FLOATS, np.zeros(2, np.float32), np.array([0, -np.inf]), "an observation is infinite (-inf); give finite"),
        (WIDE, np.zeros(2), np.array([0, np.nan]), "an observation is not a number (NaN)"),
        (
            WIDE,
            np.zeros(2),
            np.array([0, 1e300]),
            "the observation holds 1e+300, more than float32 holds; give smaller",
        ),
        (
            spaces.Dict(a=WIDE),
            {"a": np.zeros(2)},
            {"a": np.array([-1e39, 0])},
            "the observation 'a' holds -1e+39, more than float32 holds; give smaller numbers",
        ),
    ],
)
def test_infinite_observations_raise(make: Any, space: Any, good: Any, bad: Any, message: str) -> None:
    """And numpy does not warn: warnings are errors in these tests."""
    assert error_of(make(Gives(space, good, bad))).startswith(PLACES[make] + message)


@pytest.mark.parametrize("make", [serial, vector], ids=["serial", "vector"])
def test_large_finite_values_are_accepted_without_warnings(make: Any) -> None:
    good = np.zeros(2, np.float32)
    large = np.array([3e38, -1e30], np.float32)
    env = make(Gives(FLOATS, good, large, reward=1e30))
    env.reset(0)
    for _ in range(7 if make is serial else 8):  # to the third step of an episode
        now = env.step(np.zeros(2, np.int64))
    assert now.obs.max() == np.float32(3e38)
    assert now.reward.max() == np.float32(1e30)


def test_detects_infinity_after_large_values() -> None:
    obs = np.full((2, 2), 1e30, np.float32)
    watch = Watch(FLOATS, obs, "Large")
    assert watch.has_suspects()
    watch.examine([1, 2])
    assert not watch.has_suspects()
    obs[:] = 1
    obs[1, 0] = np.inf
    assert watch.has_suspects()
    with pytest.raises(
        BadEnv, match=r"^Large, environment 1, step 2 of its episode: an observation is infinite \(inf\)"
    ):
        watch.examine([1, 2])


def test_detects_infinity_after_values_out_of_bounds() -> None:
    box = spaces.Box(-1, 1, (2,), np.float32)
    obs = allocate(box, 1)
    watch = Watch(box, obs, "Far out")
    obs[0, 0] = 1000
    watch.examine([1])
    assert not watch.has_suspects()
    obs[0, 0] = np.inf
    assert watch.has_suspects()


@every
@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (10**400, "a number of 1329 bits, more than float32 holds; give a smaller number"),
        (1e300, "1e+300, more than float32 holds; give a smaller number"),
        (np.float64(-1e39), "-1e+39, more than float32 holds; give a smaller number"),
        (-np.inf, "-inf; give a finite number"),
        (np.nan, "nan; give a finite number"),
    ],
)
def test_rewards_that_float32_cannot_hold_raise(make: Any, reward: Any, message: str) -> None:
    env = make(Gives(FLOATS, np.zeros(2, np.float32), np.zeros(2, np.float32), reward))
    assert error_of(env) == f"{PLACES[make]}the reward is {message}"


@pytest.mark.parametrize("make", [serial, vector], ids=["serial", "vector"])
@pytest.mark.parametrize("nested", [False, True])
def test_mask_after_the_first_reset_raises(make: Any, nested: bool) -> None:
    good: Any = np.zeros(2, np.float32)
    space: Any = spaces.Dict(a=FLOATS) if nested else FLOATS
    mask = np.ones((2, 2) if make is vector else 2, np.int8)
    good = {"a": good} if nested else good
    info = {"action_mask": mask, "_action_mask": np.array([False, True])}
    env = make(Gives(space, good, good, info=info))
    assert error_of(env) == (
        f"{PLACES[make]}info has an 'action_mask', and that of the first reset had none; give it in the info of every "
        "reset and step, or make it part of the observation"
    )


def test_mask_only_in_a_later_reset_raises() -> None:
    class Later(Gives):
        resets = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.resets += 1
            return super().reset()[0], {"action_mask": np.ones(2, np.int8)} if self.resets > 2 else {}

    env = SerialEnvs(lambda: Later(SMALL, 1, 1), 1, "Later", inexact="")
    env.reset(0)
    for _ in range(3):
        env.step(np.zeros(1, np.int64))
    with pytest.raises(BadEnv, match=r"^Later, environment 0, step 0 of its episode: info has an 'action_mask', and"):
        env.step(np.zeros(1, np.int64))


def test_mask_may_be_in_observation_and_info() -> None:
    mask = np.ones(2, np.int8)
    space = spaces.Dict(a=FLOATS, action_mask=spaces.MultiBinary(2))
    good = {"a": np.zeros(2, np.float32), "action_mask": mask}
    for make in (serial, vector):
        env = make(Gives(space, good, good, info={"action_mask": np.ones((2, 2)) if make is vector else mask}))
        env.reset(0)
        for _ in range(3):
            assert env.step(np.zeros(2, np.int64)).obs["action_mask"].tolist() == [[1, 1]] * 2


@pytest.mark.parametrize("make", [serial, vector], ids=["serial", "vector"])
@pytest.mark.parametrize("info", [[], "much"])
def test_info_must_be_a_dictionary(make: Any, info: Any) -> None:
    env = make(Gives(SMALL, 1, 1, info=info))
    place = "Gives: " if make is vector else PLACES[make]
    assert error_of(env) == f"{place}step() returned {info!r} as info; give a dictionary"


class NoInfo(Gives):
    """Gives None as info in the reset number `resets`, or in each step if `resets` is below 0."""

    def __init__(self, resets: int) -> None:
        super().__init__(SMALL, 1, 1)
        self.resets = resets

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets -= 1
        return super().reset()[0], None if self.resets == 0 else {}

    def step(self, action: Any) -> Any:
        found = super().step(action)
        return (*found[:4], None) if self.resets < 0 else found


def test_none_as_info_names_the_method() -> None:
    with pytest.raises(BadEnv, match=r"^Gives: reset\(\) returned None as info; give a dictionary$"):
        SerialEnvs(lambda: NoInfo(1), 1, "Gives", inexact="")
    env = SerialEnvs(lambda: NoInfo(3), 1, "Gives", inexact="")
    env.reset(0)
    for _ in range(3):
        env.step(np.zeros(1, np.int64))
    place = "^Gives, environment 0, step"
    with pytest.raises(BadEnv, match=rf"{place} 0 of its episode: reset\(\) returned None as info; give a dictionary$"):
        env.step(np.zeros(1, np.int64))
    env = SerialEnvs(lambda: NoInfo(-1), 1, "Gives", inexact="")
    env.reset(0)
    with pytest.raises(BadEnv, match=rf"{place} 1 of its episode: step\(\) returned None as info; give a dictionary$"):
        env.step(np.zeros(1, np.int64))


def test_none_as_info_of_an_agent_raises() -> None:
    class Silent(Two):
        def step(self, actions: Mapping[str, int]) -> tuple[Any, Any, Any, Any, Any]:
            return (*super().step(actions)[:4], dict.fromkeys(self.possible_agents))

    env = Agents(lambda: Parallel(Silent(NoInfo(1))), 1, "Gives", "")
    env.reset(0)
    with pytest.raises(BadEnv, match=r"agent one, step 1 of its episode: step\(\) returned None as info"):
        env.step(np.zeros(2, np.int64))


def test_missing_reward_inside_a_wrapper_raises() -> None:
    def make() -> RawReturn:
        return RawReturn(Gives(FLOATS, np.zeros(2, np.float32), np.zeros(2, np.float32), None))

    env = SerialEnvs(make, 1, "Gives", inexact="")
    env.reset(0)
    env.step(np.zeros(1, np.int64))
    with pytest.raises(BadEnv, match="the reward is None; give a number"):
        env.step(np.zeros(1, np.int64))


def test_step_with_wrong_arguments_or_results_raises() -> None:
    class Bare(Gives):
        def step(self) -> Any:  # type: ignore[override]
            return super().step(0)

    class Nothing(Gives):
        def step(self, action: Any) -> Any:
            return None

    env = SerialEnvs(lambda: Bare(SMALL, 1, 1), 1, "Gives", inexact="")
    env.reset(0)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        env.step(np.zeros(1, np.int64))
    env = SerialEnvs(lambda: Nothing(SMALL, 1, 1), 1, "Gives", inexact="")
    env.reset(0)
    with pytest.raises(BadEnv, match=r"step\(\) did not return \(observation, reward, terminated, trunc"):
        env.step(np.zeros(1, np.int64))


def test_last_observation_outside_its_dtype_raises() -> None:
    """A SAME_STEP vector gives last observations for all rows; only rows that ended are checked."""

    class SameStep(Rows):
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

        def step(self, actions: Any) -> Any:
            value, reward, _, cut, _ = super().step(actions)
            last = np.array([[10**6, 10**6], [7, 300]]) if self.env.age == 2 else value
            return value, reward, [False, self.env.age == 2], cut, {"final_obs": last}

    good = np.zeros(2, np.uint8)
    env = Adapter(lambda: SameStep(Gives(FRAMES, good, good)), "Gives", inexact="a test")
    assert error_of(env).startswith(f"{PLACES[vector]}the observation holds 300, {bounds(0, 255, 'uint8')}")


def test_warnings_of_an_environment_are_not_suppressed() -> None:
    class Warns(Gives):
        def step(self, action: Any) -> Any:
            np.float32(1e30) * np.float32(1e30)
            return super().step(action)

    env = SerialEnvs(lambda: Warns(FLOATS, np.zeros(2, np.float32), np.zeros(2)), 1, "Warns", inexact="")
    env.reset(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.step(np.zeros(1, np.int64))
    assert [str(warning.message) for warning in caught] == ["overflow encountered in scalar multiply"]

"""Serial environments: spaces, statistics, seeds and errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_core.clock import Clock
from rlplug_core.errors import BadEnv
from rlplug_core.loop import evaluate as evaluating
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.plugins.transform import Transform, with_reward
from rlplug_core.protocols import Env
from rlplug_core.runs.messages import space_text
from rlplug_core.types import Act, Episode
from rlplug_envs.adapter import Adapter
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.spaces import View
from rlplug_envs.vector import SerialEnvs
from tests.tables import for_each


class Echo(gymnasium.Env[Any, Any]):
    """Stores its actions; gives the observation, reward and info of its arguments."""

    def __init__(
        self,
        action: spaces.Space[Any] | None = None,
        obs: spaces.Space[Any] | None = None,
        value: Any = None,
        reward: Any = 1.0,
        length: int = 3,
        info: Callable[[int], dict[str, Any]] = lambda age: {},
    ) -> None:
        self.action_space = action or spaces.Discrete(2)
        self.observation_space = obs or spaces.Box(-9, 9, (2,), np.float32)
        self.value = np.zeros(2, np.float32) if value is None else value
        self.reward = reward
        self.length = length
        self.info = info
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return self.value, self.info(0)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.age += 1
        return self.value, self.reward, self.age >= self.length, False, self.info(self.age)


def actions_taken(space: spaces.Space[Any], *actions: Any) -> list[Any]:
    """The actions that an environment gets for canonical actions."""
    env = SerialEnvs(lambda: Echo(space), 1, inexact="")
    env.reset(0)
    for action in actions:
        env.step(np.array([action]))
    return [np.asarray(action).tolist() for action in env.envs[0].taken]  # type: ignore[attr-defined]


def test_serial_envs_is_an_env() -> None:
    assert isinstance(SerialEnvs(Echo, 1, inexact=""), Env)


def test_bounded_box_actions_are_scaled_and_clipped() -> None:
    low = np.array([0, -3, -np.inf, 1], np.float32)
    high = np.array([10, 3, np.inf, np.inf], np.float32)
    space = spaces.Box(low, high)
    canonical = SerialEnvs(lambda: Echo(space), 1, inexact="").spec.action
    assert isinstance(canonical, spaces.Box)
    assert canonical.low.tolist() == [-1, -1, -np.inf, 1]
    assert canonical.high.tolist() == [1, 1, np.inf, np.inf]
    assert actions_taken(space, [-1, 1, 5, 2], [1, 0, -5, 0], [9, -9, 0, 1]) == [
        [0, 3, 5, 2],
        [10, 0, -5, 1],
        [10, -3, 0, 1],
    ]


def test_largest_float_is_not_a_bound() -> None:
    huge = np.finfo(np.float32).max
    assert actions_taken(spaces.Box(-huge, huge, (1,)), [2.0]) == [[2.0]]
    wide = SerialEnvs(lambda: Echo(spaces.Box(-1e308, 1e308, (1,), np.float64)), 1, inexact="").spec.action
    assert np.isfinite(wide.sample()).all()  # Gymnasium cannot sample from a range that overflows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled_actions_never_leave_the_bounds(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        low = rng.normal(size=3)
        space = spaces.Box(low.astype(dtype), (low + rng.uniform(0, 1, 3)).astype(dtype), dtype=dtype)
        for action in actions_taken(space, [1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]):
            assert space.contains(np.array(action, dtype))


def test_discrete_actions_count_from_zero() -> None:
    assert actions_taken(spaces.Discrete(3, start=5), 0, 2) == [5, 7]
    assert SerialEnvs(lambda: Echo(spaces.Discrete(3, start=5)), 1, inexact="").spec.action == spaces.Discrete(3)


def test_multi_discrete_and_multi_binary_actions() -> None:
    space = spaces.MultiDiscrete([3, 2], start=[1, 4])
    assert actions_taken(space, [0, 0], [2, 1]) == [[1, 4], [3, 5]]
    assert actions_taken(spaces.MultiBinary(3), [0, 1, 1]) == [[0, 1, 1]]


def test_environment_may_store_its_actions() -> None:
    env = SerialEnvs(lambda: Echo(spaces.Box(-1, 1, (1,))), 1, inexact="")
    env.reset(0)
    action = np.zeros((1, 1), np.float32)
    env.step(action)
    action[:] = 1
    env.step(action)
    assert [float(action[0]) for action in env.envs[0].taken] == [0, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("space", "value", "canonical"),
    [
        (spaces.Box(-1, 1, (2,), np.float64), np.array([0.1, 0.2]), spaces.Box(-1, 1, (2,), np.float32)),
        (spaces.Box(0, 255, (4, 4, 1), np.uint8), np.full((4, 4, 1), 7, np.uint8), None),
        (spaces.Discrete(5), 3, None),
        (spaces.MultiDiscrete([3, 3]), np.array([1, 2]), None),
        (spaces.MultiBinary(2), np.array([1, 0], np.int8), None),
        (
            spaces.Tuple((spaces.Discrete(5), spaces.Dict({"a": spaces.MultiBinary(2)}))),
            (4, {"a": np.array([0, 1], np.int8)}),
            spaces.Dict({"0": spaces.Discrete(5), "1": spaces.Dict({"a": spaces.MultiBinary(2)})}),
        ),
        (
            spaces.Tuple((spaces.Discrete(5), spaces.MultiBinary(2))),
            [4, np.array([0, 1], np.int8)],
            spaces.Dict({"0": spaces.Discrete(5), "1": spaces.MultiBinary(2)}),
        ),
    ],
)
def test_observations_of_every_kind(space: Any, value: Any, canonical: Any) -> None:
    env = SerialEnvs(lambda: Echo(obs=space, value=value), 2, inexact="")
    assert env.spec.obs == (canonical or space)
    env.reset(0)
    now = env.step(np.zeros(2, np.int64))

    def check(found: Any, expected: Any, space: spaces.Space[Any]) -> None:
        if isinstance(space, spaces.Dict):
            for name, inner in space.spaces.items():
                check(found[name], expected[int(name)] if isinstance(expected, tuple | list) else expected[name], inner)
        else:
            assert found.dtype == space.dtype
            for row in range(2):
                np.testing.assert_array_equal(found[row], np.asarray(expected, space.dtype))

    check(now.obs, value, env.spec.obs)


def test_masks_become_part_of_the_observation() -> None:
    env = SerialEnvs(lambda: Echo(info=lambda age: {"action_mask": np.array([1, age % 2], np.int8)}), 2, inexact="")
    assert isinstance(env.spec.obs, spaces.Dict)
    assert set(env.spec.obs.spaces) == {"obs", "action_mask"}
    now = env.reset(0)
    assert now.obs["action_mask"].tolist() == [[1, 0], [1, 0]]
    masks = []
    for _ in range(3):
        now = env.step(np.zeros(2, np.int64))
        masks.append((now.obs["action_mask"][0].tolist(), now.final_obs["action_mask"][0].tolist()))
    assert masks == [([1, 1], [1, 1]), ([1, 0], [1, 0]), ([1, 0], [1, 1])]
    assert now.obs["obs"].shape == (2, 2)


def test_mask_may_be_missing_only_in_the_last_step() -> None:
    mask = {"action_mask": np.array([1, 0], np.int8)}
    ending = SerialEnvs(lambda: Echo(info=lambda age: mask if age < 3 else {}), 1, inexact="")
    ending.reset(0)
    for _ in range(3):
        now = ending.step(np.zeros(1, np.int64))
    assert now.final_obs["action_mask"].tolist() == [[1, 1]]
    assert now.obs["action_mask"].tolist() == [[1, 0]]
    broken = SerialEnvs(lambda: Echo(info=lambda age: mask if age < 2 else {}), 1, "Echo-v0", inexact="")
    broken.reset(0)
    broken.step(np.zeros(1, np.int64))
    with pytest.raises(BadEnv, match="Echo-v0: info has no 'action_mask' in the middle of an episode"):
        broken.step(np.zeros(1, np.int64))


def test_returns_are_float64_and_rewards_float32() -> None:
    for reward in (0.1, np.float32(0.1), np.float64(0.1)):
        env = SerialEnvs(lambda reward=reward: Echo(reward=reward, length=1000), 1, inexact="")
        now = env.reset(0)
        for _ in range(1000):
            now = env.step(np.zeros(1, np.int64))
        total = 0.0
        for _ in range(1000):
            total += float(reward)
        assert now.reward.dtype == np.float32
        assert now.episodes == [Episode(0, total, 1000)]


def test_limit_truncates_and_does_not_hide_termination() -> None:
    env = SerialEnvs(lambda: Echo(length=5), 1, limit=4, inexact="")
    env.reset(0)
    flags = []
    for _ in range(8):
        now = env.step(np.zeros(1, np.int64))
        flags.append((bool(now.terminated[0]), bool(now.truncated[0]), [e.length for e in now.episodes]))
    assert flags == ([(False, False, [])] * 3 + [(False, True, [4])]) * 2
    both = SerialEnvs(lambda: Echo(length=4), 1, limit=4, inexact="")
    both.reset(0)
    for _ in range(4):
        now = both.step(np.zeros(1, np.int64))
    assert (bool(now.terminated[0]), bool(now.truncated[0])) == (True, False)


def test_limit_matches_gymnasium() -> None:
    """The provider removes TimeLimit and counts steps itself."""
    ours = Gymnasium().make("MountainCar-v0", 2)
    theirs = SerialEnvs(lambda: gymnasium.make("MountainCar-v0", disable_env_checker=True), 2, inexact="")
    np.testing.assert_array_equal(ours.reset(1).obs, theirs.reset(1).obs)
    for number in range(410):
        action = np.array([number % 3, 1])
        our_step, their_step = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(our_step.obs, their_step.obs)
        np.testing.assert_array_equal(our_step.truncated, their_step.truncated)
        assert our_step.episodes == their_step.episodes


def test_rows_have_their_own_seeds() -> None:
    few, many = (Gymnasium().make("CartPole-v1", rows).reset(7).obs.copy() for rows in (2, 5))
    np.testing.assert_array_equal(few, many[:2])
    assert len(np.unique(many[:, 0])) == 5
    assert not np.array_equal(few, Gymnasium().make("CartPole-v1", 2).reset(8).obs)


def test_steps_without_ends_share_constant_arrays() -> None:
    env = SerialEnvs(Echo, 2, inexact="")
    env.reset(0)
    first = env.step(np.zeros(2, np.int64))
    second = env.step(np.zeros(2, np.int64))
    assert first.valid is second.valid
    assert first.valid.all()
    assert first.is_first is first.terminated is first.truncated is second.is_first
    assert not first.is_first.any()
    env.step(np.zeros(2, np.int64))  # ends both episodes; must not change the constants
    assert first.valid.all()
    assert not first.is_first.any()


@for_each(
    "call, message",
    [
        (lambda: SerialEnvs(Echo, 2, "Echo-v0", inexact="").step(np.zeros(2)), "Echo-v0: step was called before reset"),
        (lambda: SerialEnvs(Echo, 0, "Echo-v0", inexact=""), "Echo-v0: num_envs is 0; it must be at least 1"),
        (lambda: step_once(Echo(), np.zeros((1, 1))), r"the actions have shape \(1, 1\), expected \(1,\)"),
        (
            lambda: step_once(Echo(value=np.zeros(3))),
            r"observation has shape \(3,\), its observation space says \(2,\)",
        ),
        (
            lambda: step_once(Echo(obs=spaces.Dict({"a": spaces.Discrete(2)}), value={"b": 1})),
            "the observation lacks the entry 'a'",
        ),
        (lambda: step_once(Echo(obs=spaces.Text(5), value="hm")), "observations of type Text have no fixed shape"),
        (lambda: step_once(Echo(spaces.Text(3))), "actions of type Text are not supported"),
        (lambda: step_once(Echo(spaces.Box(0, 3000, (1,), np.int64))), "has more than 1,000 integers; wrap"),
        (lambda: step_once(Echo(reward=np.nan, length=1)), "environment 0, step 1 .*: the reward is nan"),
        (lambda: step_once(Echo(reward=-np.inf, length=1)), "environment 0, step 1 .*: the reward is -inf"),
        (
            lambda: step_once(Echo(value=np.array([0, np.nan]), length=1)),
            "step 0 .*: an observation is not a number",
        ),
    ],
)
def test_contract_violations_raise(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadEnv, match=message):
        call()


class Broken(Echo):
    """Gives the values `bad` in the second step of an episode, and good values before."""

    def __init__(self, *bad: Any, obs: spaces.Space[Any] | None = None) -> None:
        super().__init__(obs=obs, length=9)
        self.bad = bad

    def step(self, action: Any) -> Any:
        good = super().step(action)
        return (*self.bad, *good[len(self.bad) :]) if self.age == 2 else good


WITH_NAN = np.array([0, np.nan], np.float32)


class Doubled(Transform):
    """Doubles rewards; the returns of episodes must stay unscaled."""

    def step(self, action: Any) -> Any:
        now = self.env.step(action)
        return with_reward(now, 2 * now.reward)


@pytest.mark.parametrize("vector", [False, True], ids=["serial", "vector"])
def test_returns_of_cut_evaluations_are_unscaled(vector: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "LONGEST_EPISODE", 5)
    makes = [lambda: Echo(length=9), lambda: Echo(length=3)]
    env: Any = SerialEnvs(iter([make() for make in makes]).__next__, 2, "Echo-v0", inexact="")
    if vector:
        env = Adapter(lambda: SyncVectorEnv(makes), "Echo-v0", inexact="a test")
    found = evaluate(Still(), Doubled(Doubled(env)), 0, Clock(1))  # type: ignore[arg-type]
    assert (found.returns, found.lengths, found.cut) == ((5.0, 3.0), (5, 3), 1)


SEVEN_MOVES = spaces.Discrete(7)


@for_each("evaluating", [False, True])
@for_each(
    "bad, message",
    [
        ((WITH_NAN,), r"an observation is not a number \(NaN\)"),
        ((3.0,), r"the observation has shape \(\), its observation space says \(2,\)"),
        ((np.zeros(1, np.float32),), r"the observation has shape \(1,\), its observation space says \(2,\)"),
        ((np.zeros(2), np.nan), "the reward is nan; give a finite number"),
        ((np.zeros(2), np.inf), "the reward is inf; give a finite number"),
        ((np.zeros(2), "1.5"), "the reward is '1.5'; give a number"),
        ((np.zeros(2), "much"), "the reward is 'much'; give a number"),
        ((np.zeros(2), None), "the reward is None; give a number"),
        ((np.zeros(2), np.ones(1)), r"the reward is array\(\[1\.\]\); give a number"),
        (
            (np.zeros(2), [0, 1]),
            r"the reward is \[0, 1\]; give a number: for several objectives add them .*",
        ),
        ((np.zeros(2), 1.0, "False"), "terminated is 'False'; give True or False"),
        ((np.zeros(2), 1.0, False, "yes"), "truncated is 'yes'; give True or False"),
    ],
)
def test_bad_values_raise_with_row_and_step(bad: tuple[Any, ...], message: str, evaluating: bool) -> None:
    envs = [Echo(length=9), Broken(*bad)]
    rows = SerialEnvs(iter(envs).__next__, 2, "Broken-v0", inexact="")
    if evaluating:
        with pytest.raises(BadEnv, match=f"^Broken-v0, environment 1, step 2 of its episode: {message}$"):
            evaluate(Still(), rows, 0, Clock(10))  # type: ignore[arg-type]  # it has all that evaluation calls
        return
    rows.reset(0)
    rows.step(np.zeros(2, np.int64))
    with pytest.raises(BadEnv, match=f"^Broken-v0, environment 1, step 2 of its episode: {message}$"):
        rows.step(np.zeros(2, np.int64))


def test_errors_of_a_part_use_the_row_of_the_whole_vector() -> None:
    for bad, step in (((np.zeros(2), np.nan), 2), ((WITH_NAN,), 2), ((np.zeros(3, np.float32),), 2)):
        rows = SerialEnvs(iter([Echo(length=9), Broken(*bad)]).__next__, 2, "Broken-v0", inexact="")
        rows.part(4)
        rows.reset(0)
        rows.step(np.zeros(2, np.int64))
        with pytest.raises(BadEnv, match=f"^Broken-v0, environment 5, step {step} of its episode: "):
            rows.step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("obs", "action", "values"),
    [
        (spaces.Dict({}), SEVEN_MOVES, r"observations of its space Dict\(\)"),
        (spaces.Tuple(()), SEVEN_MOVES, r"observations of its space Dict\(\)"),
        (spaces.Discrete(2), spaces.Box(-1, 1, (0,)), r"actions of its space Box\(.*\)"),
    ],
)
def test_empty_spaces_raise(obs: Any, action: Any, values: str) -> None:
    with pytest.raises(BadEnv, match=f"^Empty-v0: {values} contain no number; give at least one$"):
        View(obs, action, {}, "Empty-v0")


def test_empty_parts_of_observations_are_removed() -> None:
    inner = spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict({}), c=spaces.Tuple([spaces.Dict({}), spaces.Tuple([])]))
    assert View(inner, SEVEN_MOVES, {}, "Empty-v0").obs == spaces.Dict(a=spaces.Discrete(2))


@pytest.mark.parametrize(("space", "kind"), [(None, "None"), ((2,), "of type tuple")])
def test_attribute_that_is_not_a_space_raises(space: Any, kind: str) -> None:
    with pytest.raises(BadEnv, match=f"^Bare-v0: observation_space is {kind}; set it to a space of gymnasium.spaces"):
        View(space, SEVEN_MOVES, {}, "Bare-v0")
    with pytest.raises(BadEnv, match=f"^Bare-v0: action_space is {kind}; set it to a space of gymnasium.spaces"):
        View(SEVEN_MOVES, space, {}, "Bare-v0")


def test_errors_of_an_environment_are_unchanged() -> None:
    class Raises(Echo):
        def step(self, action: Any) -> Any:
            raise ValueError("mine")

    rows = SerialEnvs(Raises, 1, inexact="")
    rows.reset(0)
    with pytest.raises(ValueError, match=r"^mine$"):
        rows.step(np.zeros(1, np.int64))


class Still:
    """An agent that does nothing."""

    def initial(self, num_envs: int) -> None:
        return None

    def act(self, obs: Any, first: Any, state: Any, clock: Any, explore: bool = True) -> Act:
        return Act(np.zeros(len(first), np.int64), None)


def test_space_text_of_an_empty_box_has_no_bounds() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (0,), np.float32), "b": spaces.Box(-1, 1, (2,), np.float32)})
    assert space_text(space) == "{a: Box(0) of float32, b: Box(2) of float32 in [-1, 1]}"


def test_nan_in_a_dictionary_raises_with_its_entry() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(2)})
    env = Broken({"a": WITH_NAN, "b": 1}, obs=space)
    assert second_step_error(env).startswith("an observation 'a' is not a number")


def second_step_error(env: Broken) -> str:
    """The message of the error that the second step raises, without its prefix."""
    env.value = {"a": np.zeros(2, np.float32), "b": 0.0}
    rows = SerialEnvs(lambda: env, 1, "Broken-v0", inexact="")
    rows.reset(0)
    rows.step(np.zeros(1, np.int64))
    prefix = "Broken-v0, environment 0, step 2 of its episode: "
    with pytest.raises(BadEnv, match=f"^{prefix}") as raised:
        rows.step(np.zeros(1, np.int64))
    return str(raised.value).removeprefix(prefix)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"b": 1}, "the observation lacks the entry 'a' of its space"),
        ({"a": np.float32(1), "b": 1}, r"the observation 'a' has shape \(\), its observation space says \(2,\)"),
        ({"a": np.ones(1), "b": 1}, r"the observation 'a' has shape \(1,\), its observation space says \(2,\)"),
        ({"a": np.ones(3), "b": 1}, r"the observation 'a' has shape \(3,\), its observation space says \(2,\)"),
        ({"a": np.ones(2), "b": 0.5}, "the observation 'b' is 0.5, and its observation space has whole numbers"),
    ],
)
def test_entry_that_does_not_fit_its_space_raises(bad: Any, message: str) -> None:
    env = Broken(bad, obs=spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(2)}))
    assert re.match(message, second_step_error(env))


SEVEN = spaces.Discrete(7)
PAIRS = spaces.MultiDiscrete([3, 4], dtype=np.uint8, start=[1, 0])


@for_each(
    "space, good, bad, message",
    [
        (SEVEN, 6, 7, r"the observation is 7, and Discrete\(7\) has 0 to 6"),
        (SEVEN, 0, -1, r"the observation is -1, and Discrete\(7\) has 0 to 6"),
        (spaces.Discrete(3, start=1), 1, 0, r"the observation is 0, and Discrete\(3, start=1\) has 1 to 3"),
        (
            PAIRS,
            np.array([3, 3], np.uint8),
            np.array([3, 4], np.uint8),
            r"the observation holds 4, and MultiDiscrete\(.*\) has 0 to 3 there",
        ),
        (spaces.Dict(a=SEVEN), {"a": 2}, {"a": 8}, r"the observation 'a' is 8, and Discrete\(7\) has 0 to 6"),
        (
            spaces.MultiBinary(2),
            np.array([0, 1], np.int8),
            np.array([1, 2], np.int8),
            r"the observation holds 2, and MultiBinary\(2\) has 0 to 1 there",
        ),
    ],
)
@for_each("vector", [False, True])
def test_discrete_values_outside_their_space_raise(
    space: spaces.Space[Any], good: Any, bad: Any, message: str, vector: bool
) -> None:
    """A number above the range would crash a run, and -1 would be read as another state."""

    def make() -> Broken:
        env = Broken(bad, obs=space)
        env.value = good
        return env

    rows: Any = SerialEnvs(make, 2, "Off-v0", inexact="")
    if vector:
        rows = Adapter(lambda: SyncVectorEnv([make] * 2), "Off-v0", inexact="a test")
    rows.reset(0)
    rows.step(np.zeros(2, np.int64))
    expected = (
        f"^Off-v0, environment 0, step 2 of its episode: {message}; let observation_space hold all that is given$"
    )
    with pytest.raises(BadEnv, match=expected):
        rows.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_discrete_values_outside_their_space_raise_at_episode_ends(mode: AutoresetMode) -> None:
    class Ends(Broken):
        def step(self, action: Any) -> Any:
            obs, reward, _, cut, info = super().step(action)
            return obs, reward, self.age == 2, cut, info

    def make(bad: int, value: int) -> Any:
        env = Ends(bad, obs=SEVEN)
        env.value = value
        return Adapter(lambda: SyncVectorEnv([lambda: env], autoreset_mode=mode), "Off-v0", inexact="a test")

    with pytest.raises(BadEnv, match="step 0 of its episode: the observation is 9"):
        make(0, 9).reset(0)
    rows = make(8, 0)
    rows.reset(0)
    rows.step(np.zeros(1, np.int64))
    with pytest.raises(BadEnv, match="step 2 of its episode: the observation is 8"):
        rows.step(np.zeros(1, np.int64))


def test_values_far_out_of_bounds_warn_once(capsys: pytest.CaptureFixture[str]) -> None:
    rows = SerialEnvs(lambda: Broken(np.array([0, 1e6], np.float32)), 1, "Far-v0", inexact="")
    for seed in (0, 1):
        rows.reset(seed)
        for _ in range(4):
            rows.step(np.zeros(1, np.int64))
    assert capsys.readouterr().err == (
        "rlplug: Far-v0, environment 0, step 2 of its episode: an observation holds 1e+06, far outside its space's "
        "bounds; training continues, and this warning is not repeated\n"
    )


def test_rewards_and_ends_may_have_any_numeric_type() -> None:
    rows = SerialEnvs(lambda: Broken([0, 1], np.array(2), np.array(True), 0), 1, "Any-v0", inexact="")
    rows.reset(0)
    rows.step(np.zeros(1, np.int64))
    assert rows.step(np.zeros(1, np.int64)).episodes[0].total == 3


def step_once(env: Echo, action: Any = None) -> None:
    rows = SerialEnvs(lambda: env, 1, "Echo-v0", inexact="")
    rows.reset(0)
    rows.step(np.zeros(1, np.int64) if action is None else action)

"""Agents give one array; an environment gets actions of its own space: Dict, Tuple, Discrete, Box of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_core.errors import BadEnv
from rlplug_core.nets.actions import sample, shape_of
from rlplug_core.runs.policy import Policy
from rlplug_core.types import Act, Array
from rlplug_envs.adapter import Adapter
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.vector import SerialEnvs
from rlplug_envs.wrappers.actions import StickyActions, StickyActionsConfig
from tests.tables import for_each

GEAR = spaces.Discrete(3, start=-1)
WHEEL = spaces.Box(np.float32([0, -10]), np.float32([4, 10]))
LIGHTS = spaces.MultiBinary(2)
DIALS = spaces.MultiDiscrete([3, 2], start=[1, 4])
DICT = spaces.Dict({"wheel": WHEEL, "gear": GEAR})  # Gymnasium sorts it: gear, wheel
TUPLE = spaces.Tuple((WHEEL, GEAR, LIGHTS))
NESTED = spaces.Dict({"cabin": spaces.Tuple((LIGHTS, spaces.Dict({"dials": DIALS}))), "gear": GEAR})
WIDE = spaces.Tuple([spaces.Discrete(number + 2) for number in range(12)])


class Car(gymnasium.Env[Any, Any]):
    """Asserts that actions are in its space, and rewards their numbers; `mask` is in `info` if it is not None."""

    def __init__(self, action: spaces.Space[Any], mask: Any = None) -> None:
        self.action_space = action
        self.mask = mask
        self.observation_space = spaces.Box(-99, 99, (1,), np.float32)
        self.taken: list[Any] = []

    def info(self) -> dict[str, Any]:
        return {} if self.mask is None else {"action_mask": self.mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, np.float32), self.info()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.taken.append(action)
        self.age += 1
        flat = spaces.flatten(self.action_space, action)
        total = float(flat @ np.arange(1, len(flat) + 1))
        return np.array([total], np.float32), total, self.age == 3, False, self.info()


def env_actions(space: spaces.Space[Any], *actions: list[float]) -> list[Any]:
    """The actions that two environments get for canonical actions."""
    env = SerialEnvs(lambda: Car(space), 2, inexact="")
    env.reset(0)
    env.step(np.array(actions, np.float32))
    return [row.taken[0] for row in env.envs]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("start", [0, 2])
def test_discrete_actions_keep_a_narrow_dtype(dtype: Any, start: int) -> None:
    """In a Dict, in a vector and from a policy: the space does not contain wider integers."""
    narrow = spaces.Discrete(3, start=start, dtype=dtype)
    actions = env_actions(spaces.Dict({"gear": narrow, "wheel": WHEEL}), [2, 0.5, 0.5], [1, 0.5, 0.5])
    assert [action["gear"] for action in actions] == [start + 2, start + 1]
    vector = Adapter(lambda: SyncVectorEnv([lambda: Car(narrow)] * 2), "Car-v0", inexact="a test")
    vector.reset(0)
    assert vector.step(np.array([2, 1])).reward.tolist() == [3, 2]
    policy = Policy(Still(np.array(2)), SerialEnvs(lambda: Car(narrow), 1, inexact=""))  # type: ignore[arg-type]
    assert narrow.contains(policy(np.zeros(1)))


@pytest.mark.parametrize(("dtype", "kind"), [(np.int64, np.int64), (np.int32, int), (np.uint8, int)])
def test_discrete_actions_are_int64_or_int(dtype: Any, kind: type) -> None:
    env = SerialEnvs(lambda: Car(spaces.Discrete(3, dtype=dtype)), 2, inexact="")
    env.reset(0)
    env.step(np.array([2, 0]))  # the environment refuses what its space does not contain
    taken = [row.taken[0] for row in env.envs]  # type: ignore[attr-defined]
    assert (taken, [type(action) for action in taken]) == ([2, 0], [kind, kind])


def test_dict_actions_are_scaled_and_shifted() -> None:
    first, second = env_actions(DICT, [0, 0.5, 0], [2, -9, 9])
    assert first["gear"] == -1
    assert first["wheel"].tolist() == [3, 0]
    assert second["gear"] == 1
    assert second["wheel"].tolist() == [0, 10]
    assert list(first) == ["gear", "wheel"]
    assert first["wheel"].dtype == np.float32


def test_tuple_space_gets_tuples() -> None:
    first, second = env_actions(TUPLE, [1, -1, 2, 0, 1], [0, 0, 1, 1, 1])
    assert isinstance(first, tuple)
    assert [first[0].tolist(), first[1], first[2].tolist()] == [[4, -10], 1, [0, 1]]
    assert [second[0].tolist(), second[1], second[2].tolist()] == [[2, 0], 0, [1, 1]]


def test_nested_tuples_and_dictionaries() -> None:
    action, _ = env_actions(NESTED, [1, 0, 2, 1, 0], [0, 0, 0, 0, 0])
    lights, rest = action["cabin"]
    assert lights.tolist() == [1, 0]
    assert rest["dials"].tolist() == [3, 5]
    assert action["gear"] == -1


def test_long_tuple_keeps_its_order() -> None:
    """Sorted as text, the tenth part would come before the second."""
    first, second = env_actions(WIDE, [number + 1 for number in range(12)], [0] * 12)
    assert list(first) == [number + 1 for number in range(12)]
    assert list(second) == [0] * 12
    canonical = SerialEnvs(lambda: Car(WIDE), 1, inexact="").spec.action
    assert isinstance(canonical, spaces.Dict)
    assert list(canonical.spaces) == [str(number) for number in range(12)]


@pytest.mark.parametrize(
    ("space", "canonical"),
    [
        (DICT, spaces.Dict({"gear": spaces.Discrete(3), "wheel": spaces.Box(-1, 1, (2,))})),
        (TUPLE, spaces.Dict({"0": spaces.Box(-1, 1, (2,)), "1": spaces.Discrete(3), "2": LIGHTS})),
        (
            NESTED,
            spaces.Dict(
                {
                    "cabin": spaces.Dict({"0": LIGHTS, "1": spaces.Dict({"dials": spaces.MultiDiscrete([3, 2])})}),
                    "gear": spaces.Discrete(3),
                }
            ),
        ),
    ],
)
def test_canonical_space_is_a_dict_of_canonical_parts(space: spaces.Space[Any], canonical: spaces.Space[Any]) -> None:
    env = SerialEnvs(lambda: Car(space), 2, inexact="")
    assert env.spec.action == canonical


@for_each("space", [DICT, TUPLE, NESTED, WIDE])
@for_each("mode", AutoresetMode)
def test_vector_environments_get_the_same_actions_as_rows(space: spaces.Space[Any], mode: AutoresetMode) -> None:
    rows = SerialEnvs(lambda: Car(space), 2, inexact="")
    vector = Adapter(lambda: SyncVectorEnv([lambda: Car(space)] * 2, autoreset_mode=mode), inexact="")
    canonical = rows.spec.action
    canonical.seed(0)
    assert vector.spec.action == canonical
    for env in (rows, vector):
        env.reset(0)
    for _ in range(2):
        action = sample(canonical, 2)
        np.testing.assert_array_equal(rows.step(action).reward, vector.step(action).reward)


@pytest.mark.parametrize("space", [DICT, TUPLE, NESTED])
def test_state_with_structured_actions_is_exact(space: spaces.Space[Any]) -> None:
    """The environment stores its actions, so they are part of its state."""
    assert self_test(lambda: SerialEnvs(lambda: Car(space), 2, inexact="")) == ""


def test_environment_may_store_its_actions() -> None:
    env = SerialEnvs(lambda: Car(DICT), 1, inexact="")
    env.reset(0)
    action = np.zeros((1, 3), np.float32)
    env.step(action)
    action[:] = 1
    env.step(action)
    taken = env.envs[0].taken  # type: ignore[attr-defined]
    assert [stored["wheel"].tolist() for stored in taken] == [[2, 0], [4, 10]]


class Still:
    """An agent that always takes the same action."""

    def __init__(self, action: Array) -> None:
        self.action = action

    def initial(self, num_envs: int) -> None:
        """Return None as recurrent state."""

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Any, explore: bool = True) -> Act:
        return Act(np.repeat(self.action[None], len(obs), 0))


def test_policy_returns_actions_of_the_environments_space() -> None:
    env = SerialEnvs(lambda: Car(NESTED), 1, inexact="")
    policy = Policy(Still(np.array([1, 0, 2, 1, 0], np.float32)), env)  # type: ignore[arg-type]
    single = policy(np.zeros(1, np.float32))
    assert NESTED.contains(single)
    assert single["cabin"][1]["dials"].tolist() == [3, 5]
    batch = policy(np.zeros((4, 1), np.float32))
    assert batch["gear"].tolist() == [-1] * 4
    assert batch["cabin"][0].shape == (4, 2)


def test_sticky_actions_repeat_structured_actions() -> None:
    env = StickyActions(SerialEnvs(lambda: Car(NESTED), 3, inexact=""), StickyActionsConfig(probability=0.5))
    env.reset(0)
    env.spec.action.seed(0)
    for _ in range(20):
        env.step(sample(env.spec.action, 3))  # Car asserts that it is an action
    assert env.state_dict()["taken"].shape == (3, *shape_of(env.spec.action))


def test_mask_covers_the_choices_of_all_parts() -> None:
    mask = np.array([1, 0, 1, 0, 1, 1, 0, 1], np.int8)
    env = SerialEnvs(lambda: Car(NESTED, mask), 2, inexact="")
    assert env.reset(0).obs["action_mask"].tolist() == [mask.tolist()] * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Car(DIALS, (np.ones(3), np.ones(2))),
            r"info\['action_mask'\] is not an array of numbers; give one array",
        ),
        (lambda: Car(DICT, {"gear": np.ones(3)}), r"info\['action_mask'\] is not an array of numbers"),
        (lambda: Car(spaces.Dict({"a": spaces.Text(3)})), "actions of type Text are not supported; wrap the environm"),
        (
            lambda: Car(spaces.Tuple([spaces.Box(0, 1000, (1,), np.int64)])),
            "has more than 1,000 integers; wrap",
        ),
    ],
)
def test_unsupported_masks_and_spaces_raise(make: Callable[[], Car], message: str) -> None:
    with pytest.raises(BadEnv, match=message):
        SerialEnvs(make, 1, "Car-v0", inexact="")


def test_actions_of_the_wrong_shape_raise() -> None:
    env = SerialEnvs(lambda: Car(DICT), 1, "Car-v0", inexact="")
    env.reset(0)
    with pytest.raises(BadEnv, match=r"Car-v0: the actions have shape \(1, 2\), expected \(1, 3\)"):
        env.step(np.zeros((1, 2), np.float32))


class Integers(gymnasium.Env[Any, Any]):
    """Takes integers from a Box, and observes the last ones."""

    def __init__(self, space: spaces.Box) -> None:
        self.action_space = space
        self.observation_space = spaces.Box(-1e6, 1e6, space.shape, np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(self.action_space.shape), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return action.astype(np.float64), 1.0, False, False, {}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-3, 5, (2, 3), np.int64),
        spaces.Box(0, 255, (2,), np.uint8),
        spaces.Box(np.array([0, 10], np.int16), np.array([0, 12], np.int16), dtype=np.int16),
        spaces.Box(0, 1, (3,), np.bool_),
        spaces.Box(-2, 3, (), np.int32),
    ],
)
def test_integer_box_becomes_multi_discrete(space: spaces.Box) -> None:
    env = SerialEnvs(lambda: Integers(space), 2, "Integers-v0")
    assert env.spec.inexact == ""
    assert isinstance(env.spec.action, spaces.MultiDiscrete)
    counts = (space.high.astype(int) - space.low + 1).reshape(-1)
    assert env.spec.action.nvec.tolist() == counts.tolist()
    env.reset(0)
    least = np.zeros((2, len(counts)), np.int64)
    most = np.tile(counts - 1, (2, 1))
    assert np.array_equal(env.step(least).obs, np.stack([space.low] * 2))
    assert np.array_equal(env.step(most).obs, np.stack([space.high] * 2))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scalar_box_gets_arrays_of_its_dtype(dtype: Any) -> None:
    """Gymnasium warns of other types at each step. Bounds of float16 cannot be compared with 1e30."""
    space: Any = spaces.Box(-2, 2, (), dtype)
    assert [action.tolist() for action in env_actions(space, 0.5, -1)] == [1, -2]  # type: ignore[arg-type]

"""Dict and Tuple actions of real environments: agents give one array, the environment gets its own."""

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
    """Holds every action to its space, and pays for numbers in it; a mask in `info` where the test gives one."""

    def __init__(self, action: spaces.Space[Any], mask: Any = None) -> None:
        self.action_space, self.mask = action, mask
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


def given(space: spaces.Space[Any], *actions: list[float]) -> list[Any]:
    """What an environment gets for canonical actions of two rows."""
    env = SerialEnvs(lambda: Car(space), 2, inexact="")
    env.reset(0)
    env.step(np.array(actions, np.float32))
    return [row.taken[0] for row in env.envs]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("start", [0, 2])
def test_a_choice_of_a_narrower_type_arrives_as_one(dtype: Any, start: int) -> None:
    """In a Dict, in a vector and from a policy; the space holds no wider ones."""
    narrow = spaces.Discrete(3, start=start, dtype=dtype)
    found = given(spaces.Dict({"gear": narrow, "wheel": WHEEL}), [2, 0.5, 0.5], [1, 0.5, 0.5])
    assert [one["gear"] for one in found] == [start + 2, start + 1]
    vector = Adapter(lambda: SyncVectorEnv([lambda: Car(narrow)] * 2), "Car-v0", inexact="a test")
    vector.reset(0)
    assert vector.step(np.array([2, 1])).reward.tolist() == [3, 2]
    policy = Policy(Still(np.array(2)), SerialEnvs(lambda: Car(narrow), 1, inexact=""))  # type: ignore[arg-type]
    assert narrow.contains(policy(np.zeros(1)))


@pytest.mark.parametrize(("dtype", "kind"), [(np.int64, np.int64), (np.int32, int), (np.uint8, int)])
def test_one_choice_comes_as_the_space_draws_it_or_as_a_plain_number_that_it_takes(dtype: Any, kind: type) -> None:
    env = SerialEnvs(lambda: Car(spaces.Discrete(3, dtype=dtype)), 2, inexact="")
    env.reset(0)
    env.step(np.array([2, 0]))  # the environment refuses what its space does not contain
    taken = [row.taken[0] for row in env.envs]  # type: ignore[attr-defined]
    assert (taken, [type(one) for one in taken]) == ([2, 0], [kind, kind])


def test_a_dictionary_gets_its_parts_scaled_and_shifted() -> None:
    one, other = given(DICT, [0, 0.5, 0], [2, -9, 9])
    assert one["gear"] == -1
    assert one["wheel"].tolist() == [3, 0]
    assert other["gear"] == 1
    assert other["wheel"].tolist() == [0, 10]
    assert list(one) == ["gear", "wheel"]
    assert one["wheel"].dtype == np.float32


def test_a_tuple_gets_a_tuple() -> None:
    one, other = given(TUPLE, [1, -1, 2, 0, 1], [0, 0, 1, 1, 1])
    assert isinstance(one, tuple)
    assert [one[0].tolist(), one[1], one[2].tolist()] == [[4, -10], 1, [0, 1]]
    assert [other[0].tolist(), other[1], other[2].tolist()] == [[2, 0], 0, [1, 1]]


def test_tuples_and_dictionaries_may_lie_in_one_another() -> None:
    one, _ = given(NESTED, [1, 0, 2, 1, 0], [0, 0, 0, 0, 0])
    lights, rest = one["cabin"]
    assert lights.tolist() == [1, 0]
    assert rest["dials"].tolist() == [3, 5]
    assert one["gear"] == -1


def test_a_long_tuple_keeps_its_order() -> None:
    """Sorted as text, the tenth part would come before the second."""
    one, other = given(WIDE, [number + 1 for number in range(12)], [0] * 12)
    assert list(one) == [number + 1 for number in range(12)]
    assert list(other) == [0] * 12
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
def test_agents_see_a_dictionary_of_canonical_parts(space: spaces.Space[Any], canonical: spaces.Space[Any]) -> None:
    env = SerialEnvs(lambda: Car(space), 2, inexact="")
    assert env.spec.action == canonical


@for_each("space", [DICT, TUPLE, NESTED, WIDE])
@for_each("mode", AutoresetMode)
def test_vector_environments_get_what_rows_get(space: spaces.Space[Any], mode: AutoresetMode) -> None:
    rows, vector = SerialEnvs(lambda: Car(space), 2, inexact=""), Adapter(
        lambda: SyncVectorEnv([lambda: Car(space)] * 2, autoreset_mode=mode), inexact=""
    )  # fmt: skip
    canonical = rows.spec.action
    canonical.seed(0)
    assert vector.spec.action == canonical
    for env in (rows, vector):
        env.reset(0)
    for _ in range(2):
        action = sample(canonical, 2)
        np.testing.assert_array_equal(rows.step(action).reward, vector.step(action).reward)


@pytest.mark.parametrize("space", [DICT, TUPLE, NESTED])
def test_state_with_such_actions_is_exact(space: spaces.Space[Any]) -> None:
    """The environment keeps all its actions, which are part of its state."""
    assert self_test(lambda: SerialEnvs(lambda: Car(space), 2, inexact="")) == ""


def test_an_environment_may_keep_its_action() -> None:
    env = SerialEnvs(lambda: Car(DICT), 1, inexact="")
    env.reset(0)
    action = np.zeros((1, 3), np.float32)
    env.step(action)
    action[:] = 1
    env.step(action)
    kept = env.envs[0].taken  # type: ignore[attr-defined]
    assert [one["wheel"].tolist() for one in kept] == [[2, 0], [4, 10]]


class Still:
    """Always the same action."""

    def __init__(self, action: Array) -> None:
        self.action = action

    def initial(self, num_envs: int) -> None:
        """Nothing to remember."""

    def act(self, obs: Any, is_first: Any, recurrent_state: Any, clock: Any, explore: bool = True) -> Act:
        return Act(np.repeat(self.action[None], len(obs), 0))


def test_a_loaded_policy_gives_the_environments_own_action() -> None:
    env = SerialEnvs(lambda: Car(NESTED), 1, inexact="")
    policy = Policy(Still(np.array([1, 0, 2, 1, 0], np.float32)), env)  # type: ignore[arg-type]
    one = policy(np.zeros(1, np.float32))
    assert NESTED.contains(one)
    assert one["cabin"][1]["dials"].tolist() == [3, 5]
    several = policy(np.zeros((4, 1), np.float32))
    assert several["gear"].tolist() == [-1] * 4
    assert several["cabin"][0].shape == (4, 2)


def test_actions_with_parts_may_stick() -> None:
    env = StickyActions(SerialEnvs(lambda: Car(NESTED), 3, inexact=""), StickyActionsConfig(probability=0.5))
    env.reset(0)
    env.spec.action.seed(0)
    for _ in range(20):
        env.step(sample(env.spec.action, 3))  # Car asserts that it is an action
    assert env.state_dict()["taken"].shape == (3, *shape_of(env.spec.action))


def test_a_mask_covers_the_choices_of_all_parts() -> None:
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
def test_impossible_requests_are_one_sentence(make: Callable[[], Car], message: str) -> None:
    with pytest.raises(BadEnv, match=message):
        SerialEnvs(make, 1, "Car-v0", inexact="")


def test_actions_of_the_wrong_width_are_refused() -> None:
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
def test_places_of_a_box_of_integers_are_choices(space: spaces.Box) -> None:
    env = SerialEnvs(lambda: Integers(space), 2, "Integers-v0")
    assert env.spec.inexact == ""
    assert isinstance(env.spec.action, spaces.MultiDiscrete)
    counts = (space.high.astype(int) - space.low + 1).reshape(-1)
    assert env.spec.action.nvec.tolist() == counts.tolist()
    env.reset(0)
    least, most = np.zeros((2, len(counts)), np.int64), np.tile(counts - 1, (2, 1))
    assert np.array_equal(env.step(least).obs, np.stack([space.low] * 2))
    assert np.array_equal(env.step(most).obs, np.stack([space.high] * 2))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_box_of_one_number_takes_arrays_as_it_draws_them(dtype: Any) -> None:
    """Gymnasium warns of other numbers at each step. Bounds of float16 cannot be compared with 1e30."""
    space: Any = spaces.Box(-2, 2, (), dtype)
    assert [action.tolist() for action in given(space, 0.5, -1)] == [1, -2]  # type: ignore[arg-type]

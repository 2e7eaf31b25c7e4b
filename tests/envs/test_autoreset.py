"""All autoreset modes give the same transitions as serial rows; vectors that break their mode raise errors."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from rlplug_core.errors import BadEnv
from rlplug_core.protocols import Env
from rlplug_envs.adapter import Adapter
from rlplug_envs.rows import row_seed
from rlplug_envs.vector import SerialEnvs
from tests.envs.walks import MODES, Rich, Walk, environments, play_rows, reference, sync


@pytest.mark.parametrize("kind", [Walk, Rich])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), num_envs=st.integers(1, 4), data=st.data())
def test_all_modes_match_a_plain_loop(kind: type[Walk], seed: int, num_envs: int, data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, 25))
    actions = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 3, (num_envs, steps))
    expected = reference(kind, seed, actions)
    assert play_rows(SerialEnvs(kind, num_envs, inexact=""), seed, actions) == expected
    for mode in MODES:
        assert play_rows(Adapter(lambda mode=mode: sync(kind, num_envs, mode), inexact=""), seed, actions) == expected


def test_walk_terminates_and_is_truncated() -> None:
    """Otherwise the property above would not test ends of episodes."""
    transitions, _ = reference(Walk, 0, np.full((4, 60), 1))
    flags = np.array([transition[2][1:3] for row in transitions for transition in row])
    assert flags[:, 0].any()
    assert flags[:, 1].any()


@pytest.mark.parametrize("name", list(environments()))
def test_arrays_stay_valid_until_the_second_next_call(name: str) -> None:
    env = environments()[name]
    now = env.reset(0)
    for _ in range(40):
        fields = ("obs", "final_obs", "reward", "terminated", "truncated", "is_first", "valid")
        before = {field: (getattr(now, field), getattr(now, field).copy()) for field in fields}
        now = env.step(np.ones(2, np.int64))
        for field, (array, copy) in before.items():
            np.testing.assert_array_equal(array, copy, err_msg=field)
            assert not np.shares_memory(array, now.obs)


@pytest.mark.parametrize("name", list(environments()))
def test_final_obs_is_obs_without_resets(name: str) -> None:
    env = environments()[name]
    env.reset(0)
    for _ in range(40):
        now = env.step(np.ones(2, np.int64))
        assert (now.final_obs is now.obs) == (not now.ended or name == "NextStep")


def test_native_next_step_vector_is_mapped() -> None:
    rows = 3

    def make() -> VectorEnv:
        return CartPoleVectorEnv(rows, max_episode_steps=12)

    native = make()
    env = Adapter(make, "CartPole-v1", inexact="")
    now = env.reset(5)
    obs, _ = native.reset(seed=row_seed(5, 0))
    np.testing.assert_array_equal(now.obs, obs)
    resetting, lengths = np.zeros(rows, np.bool_), np.zeros(rows, np.int64)
    ends = {"terminated": 0, "truncated": 0}
    for number in range(200):
        action = np.random.default_rng(number).integers(0, 2, rows) if number > 50 else np.full(rows, number % 2)
        now = env.step(action)
        obs, reward, terminated, truncated, _ = native.step(action)
        lengths += ~resetting
        np.testing.assert_array_equal(now.obs, obs)
        np.testing.assert_array_equal(now.valid, ~resetting)
        np.testing.assert_array_equal(now.is_first, resetting)
        np.testing.assert_array_equal(now.reward, np.where(resetting, 0, reward))
        np.testing.assert_array_equal(now.terminated, terminated)
        np.testing.assert_array_equal(now.truncated, truncated & ~terminated)
        resetting = terminated | truncated
        assert [(episode.row, episode.length, episode.total) for episode in now.episodes] == [
            (row, lengths[row], lengths[row]) for row in np.flatnonzero(resetting)
        ]
        lengths[resetting] = 0
        ends["terminated"] += now.terminated.sum()
        ends["truncated"] += now.truncated.sum()
    assert all(ends.values())


def play_to_an_end(env: Env) -> None:
    """Push every pole over, that of row 0 later than the others."""
    now = env.reset(0)
    for number in range(100):
        if now.ended:
            return
        action = np.ones(env.spec.num_envs, np.int64)
        action[0] = number % 2
        now = env.step(action)


class IgnoresMask(CartPoleVectorEnv):
    metadata: ClassVar = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.DISABLED}


def test_ignored_masked_reset_raises() -> None:
    env = Adapter(lambda: IgnoresMask(4), "Native-v0", inexact="")
    with pytest.raises(BadEnv, match=r"Native-v0: reset\(options=\{'reset_mask'.*SAME_STEP or NEXT_STEP"):
        play_to_an_end(env)


class Undeclared(CartPoleVectorEnv):
    metadata: ClassVar = {}


def test_undeclared_mode_raises() -> None:
    with pytest.raises(BadEnv, match=r"Undeclared: .*set metadata\['autoreset_mode'\] to .*NEXT_STEP, SAME_STEP or"):
        Adapter(lambda: Undeclared(2), inexact="")


class NoSuccessor(CartPoleVectorEnv):
    metadata: ClassVar = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}


def test_same_step_without_final_obs_raises() -> None:
    env = Adapter(lambda: NoSuccessor(2), "Native-v0", inexact="")
    with pytest.raises(BadEnv, match="Native-v0: its mode is SAME_STEP, but info has no 'final_obs'"):
        play_to_an_end(env)


def test_async_rows_have_equal_seeds_and_are_inexact() -> None:
    make = partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)
    vector = AsyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP, context="spawn")
    env = Adapter(lambda: vector, "CartPole-v1")
    assert env.spec.inexact == "CartPole-v1: its environments run in other processes, so their state cannot be captured"
    actions = np.ones((2, 30), np.int64)
    assert play_rows(env, 3, actions) == play_rows(SerialEnvs(make, 2, inexact=""), 3, actions)


class Batched(VectorEnv):
    """A SAME_STEP vector that counts to three and gives `final_obs` as one array instead of one object per row."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}
    num_envs = 2
    single_observation_space = spaces.Box(0, 9, (1,), np.float32)
    single_action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.count = np.array([0, 1])
        return self.count[:, None].astype(np.float32), {}

    def step(self, actions: Any) -> Any:
        self.count += 1
        ended = self.count == 3
        final = self.count[:, None].astype(np.float32)
        self.count[ended] = 0
        info = {"final_obs": final} if ended.any() else {}
        return self.count[:, None].astype(np.float32), np.ones(2), ended, np.zeros(2, np.bool_), info


class Listed(Batched):
    """Gives `final_obs` as a list, with None for rows without an end."""

    def step(self, actions: Any) -> Any:
        *results, info = super().step(actions)
        if info:
            rows = zip(info["final_obs"], results[2], strict=True)
            info = {"final_obs": [final if ended else None for final, ended in rows]}
        return *results, info


@pytest.mark.parametrize("make", [Batched, Listed])
def test_final_obs_may_be_an_array_or_a_list(make: type[Batched]) -> None:
    env = Adapter(make, inexact="")
    env.reset(0)
    env.step(np.zeros(2, np.int64))
    now = env.step(np.zeros(2, np.int64))
    assert (now.final_obs[:, 0].tolist(), now.obs[:, 0].tolist()) == ([2, 3], [2, 0])


class Broken(Batched):
    """Gives the value `bad` at the position `place` of its second step."""

    def __init__(self, place: int, bad: Any) -> None:
        super().__init__()
        self.place = place
        self.bad = bad
        self.calls = 0

    def step(self, actions: Any) -> Any:
        self.calls += 1
        results = [*super().step(actions)]
        results[self.place] = self.bad if self.calls == 2 else results[self.place]
        return tuple(results)


@pytest.mark.parametrize(
    ("place", "bad", "message"),
    [
        (0, 3.0, r": the observation has shape \(\), its observation space says \(2, 1\)"),
        (0, np.zeros((1, 1)), r": the observation has shape \(1, 1\), its observation space says \(2, 1\)"),
        (1, 1.0, r", step 2: reward has the shape \(\); give an array of shape \(2,\)"),
        (1, ["1", "2"], r", environment 0, step 2 of its episode: the reward is .*'1'.*; give a number"),
        (2, [False, "no"], r", environment [01], step 2 of its episode: terminated is .*; give True or False"),
        (3, True, r", step 2: truncated has the shape \(\); give an array of shape \(2,\)"),
    ],
)
def test_bad_values_of_a_vector_raise(place: int, bad: Any, message: str) -> None:
    env = Adapter(lambda: Broken(place, bad), "Broken-v0", inexact="")
    env.reset(0)
    env.step(np.zeros(2, np.int64))
    with pytest.raises(BadEnv, match=f"^Broken-v0{message}$"):
        env.step(np.zeros(2, np.int64))


def test_vector_may_give_lists_of_numbers() -> None:
    env = Adapter(lambda: Broken(1, [1, 2]), "Lists-v0", inexact="")
    env.reset(0)
    for _ in range(2):
        now = env.step(np.zeros(2, np.int64))
    assert now.reward.tolist() == [1, 2]


class Reused(gymnasium.Env[Any, Any]):
    """Writes all observations into the same array."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, nested: bool = False) -> None:
        self.array = np.zeros(1, np.float32)
        self.nested = nested
        if nested:
            self.observation_space = spaces.Dict(a=spaces.Tuple((spaces.Discrete(9), self.observation_space)))

    def observe(self) -> Any:
        return {"a": (int(self.array[0]), self.array)} if self.nested else self.array

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.array[:] = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.array += 1
        return self.observe(), 1.0, False, bool(self.array[0] == 3), {}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_observations_in_one_array_raise_in_same_step(mode: AutoresetMode, nested: bool) -> None:
    """In SAME_STEP, Gymnasium's reset overwrites the last observation before it is read."""

    def make() -> Adapter:
        rows = SyncVectorEnv([lambda: Reused(nested)], autoreset_mode=mode)
        return Adapter(lambda: rows, "reused", inexact="a test")

    if mode is AutoresetMode.SAME_STEP:
        with pytest.raises(BadEnv, match="reused: its environments write each observation into the same array"):
            make()
        return
    env = make()
    env.reset(0)
    ends = [env.step(np.zeros(1, np.int64)).final_obs for _ in range(3)][-1]
    assert (ends["a"]["1"] if nested else ends).tolist() == [[3]]

"""The small environments have the documented returns and an exact state, and overwrite old arrays."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.nets.actions import join, sample
from rlplug_core.protocols import Env
from rlplug_core.testing import envs, multi_part_actions
from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array, first_leaf, tree_map
from tests.tables import for_each

KINDS: list[type[Vector]] = [
    envs.Chain, envs.Truncated, envs.Recall, envs.Masked, envs.Pixels, envs.Bandit, envs.Continuous, envs.Exiting,
    multi_part_actions.Dials, multi_part_actions.MaskedDials, multi_part_actions.Switches, multi_part_actions.Panel,
]  # fmt: skip


def choose(env: Vector, obs: Any, rng: np.random.Generator) -> Array:
    """Return random legal actions."""
    if isinstance(env, multi_part_actions.MaskedDials):
        return lowest(obs)
    if not isinstance(env.spec.action, spaces.Discrete):
        env.spec.action.seed(int(rng.integers(1000)))
        return sample(env.spec.action, env.num_envs)
    preference = rng.random((env.num_envs, int(env.spec.action.n)))  # type: ignore[attr-defined]
    if isinstance(obs, dict) and "action_mask" in obs:
        preference *= obs["action_mask"]
    action: Array = preference.argmax(axis=1)
    return action


def play(env: Vector, obs: Any, steps: int) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(1)
    outputs = []
    for _ in range(steps):
        timestep = env.step(choose(env, obs, rng))
        obs = tree_map(np.copy, timestep.obs)
        ends = (timestep.terminated, timestep.truncated, timestep.is_first, timestep.episodes)
        outputs.append(repr((obs, timestep.final_obs, timestep.reward, *ends)))
    return outputs, obs


@for_each("kind", KINDS)
def test_state_is_exact(kind: type[Vector]) -> None:
    env = kind(3)
    assert isinstance(env, Env)
    timestep = env.reset(4)
    outputs, obs = play(env, tree_map(np.copy, timestep.obs), 7)
    state = env.state_dict()
    expected, _ = play(env, obs, 20)
    resumed = kind(3)
    resumed.load_state_dict(state)
    assert play(resumed, obs, 20)[0] == expected
    assert "Episode" in "".join(outputs + expected)


@for_each("kind", KINDS)
def test_space_contains_the_observations(kind: type[Vector]) -> None:
    env = kind(2)
    obs = env.reset(0).obs
    for row in range(2):
        assert env.spec.obs.contains(tree_map(lambda array, row=row: array[row], obs))
    assert not np.array_equal(first_leaf(kind(9).reset(0).obs), first_leaf(kind(9).reset(1).obs)) or kind in (
        envs.Chain, envs.Truncated, envs.Masked, envs.Bandit, envs.Exiting,
    )  # fmt: skip


@for_each("kind", KINDS)
def test_arrays_are_overwritten_in_the_second_next_call(kind: type[Vector]) -> None:
    env = kind(2)
    timestep = env.reset(0)
    array = first_leaf(timestep.obs)
    copy = first_leaf(timestep.obs).copy()
    rng = np.random.default_rng(0)
    timestep = env.step(choose(env, timestep.obs, rng))
    np.testing.assert_array_equal(array, copy)
    env.step(choose(env, timestep.obs, rng))
    assert not np.array_equal(array, copy)


def totals(env: Vector, steps: int, act: Any) -> tuple[float, float]:
    """Return the mean return of all episodes and its standard error."""
    timestep = env.reset(0)
    returns = []
    for _ in range(steps):
        timestep = env.step(act(timestep.obs))
        returns += [episode.total for episode in timestep.episodes]
    return float(np.mean(returns)), float(np.std(returns) / np.sqrt(len(returns)))


def test_chain_values() -> None:
    env = envs.Chain(200)
    rng = np.random.default_rng(0)
    mean, error = totals(env, 100, lambda obs: rng.integers(0, 2, 200))
    assert abs(mean - 0.5) < 4 * error
    right = envs.Chain(1)
    right.reset(0)
    rewards = [float(right.step(np.ones(1, np.int64)).reward[0]) for _ in range(3)]
    assert rewards == [0, 0, 1]
    timestep = right.step(np.ones(1, np.int64))
    assert timestep.obs[0].tolist() == [0, 0, 0, 1, 0]


def test_truncated_never_terminates() -> None:
    env = envs.Truncated(1)
    env.reset(0)
    steps = [env.step(np.zeros(1, np.int64)) for _ in range(10)]
    assert [bool(timestep.ended) for timestep in steps] == [False] * 9 + [True]
    assert bool(steps[-1].truncated[0])
    assert not steps[-1].terminated[0]
    assert steps[-1].episodes[0].total == 10


@pytest.mark.parametrize(("kind", "length"), [(envs.Recall, 5), (envs.LongRecall, 12)])
def test_recall_rewards_memory(kind: type[envs.Recall], length: int) -> None:
    env = kind(50)
    timestep = env.reset(0)
    cue = timestep.obs["cue"][:, 0].copy()
    rewards = np.zeros(50)
    for number in range(length):
        assert (timestep.obs["asked"] == (number == length - 1)).all()
        assert number == 0 or not timestep.obs["cue"].any()
        timestep = env.step((cue > 0).astype(np.int64))
        rewards += timestep.reward
    assert (rewards == 1).all()
    mean, error = totals(env, 100, lambda obs: np.ones(50, np.int64))
    assert abs(mean - 0.5) < 4 * error


def test_masked_rewards_the_lower_allowed_action() -> None:
    env = envs.Masked(4)
    assert totals(env, 8, lambda obs: obs["action_mask"].argmax(axis=1))[0] == 4
    timestep = env.reset(0)
    with pytest.raises(ValueError, match="forbidden actions were taken in the rows"):
        env.step(timestep.obs["action_mask"].argmin(axis=1))


def test_one_step_problems() -> None:
    assert totals(envs.Pixels(8), 9, lambda obs: (obs[:, 0, 0].argmax(axis=1) >= 5).astype(np.int64))[0] == 1
    for arm, value in ((0, 0.1), (1, 0.9)):
        mean, error = totals(envs.Bandit(100), 20, lambda obs, arm=arm: np.full(100, arm))
        assert abs(mean - value) < 4 * error
    assert totals(envs.Continuous(8), 9, lambda obs: obs / 2)[0] == pytest.approx(0, abs=1e-12)
    assert totals(envs.Continuous(8), 9, lambda obs: obs / 2 + 0.1)[0] == pytest.approx(-0.01, abs=1e-6)


def lowest(obs: Any) -> Array:
    """Return the lowest allowed position of each dial."""
    return np.stack([obs["action_mask"][:, :3].argmax(1), obs["action_mask"][:, 3:].argmax(1)], 1)


def test_dials_and_switches_reward_each_part() -> None:
    assert totals(multi_part_actions.Dials(8), 9, lambda obs: obs.copy())[0] == 1
    assert totals(multi_part_actions.Switches(8), 9, lambda obs: obs.copy())[0] == 1
    assert totals(multi_part_actions.Switches(8), 9, lambda obs: 1 - obs)[0] == 0
    for kind, chance in ((multi_part_actions.Dials, 5 / 12), (multi_part_actions.Switches, 1 / 2)):
        mean, error = totals(kind(100), 20, lambda obs, kind=kind: sample(kind.action, 100))
        assert abs(mean - chance) < 4 * error


def test_masked_dials_reward_the_lowest_allowed_position() -> None:
    env = multi_part_actions.MaskedDials(4)
    assert totals(env, 8, lowest)[0] == 4
    obs = env.reset(0).obs
    with pytest.raises(ValueError, match="forbidden actions were taken in the rows"):
        env.step(np.stack([obs["action_mask"][:, :3].argmin(1), obs["action_mask"][:, 3:].argmax(1)], 1))


def test_panel_rewards_each_part() -> None:
    def mean_return(button: int = 0, levers: float = 0.0, dials: int = 0, switches: int = 0) -> float:
        """Return the mean return of right actions plus the given errors."""

        def act(obs: Any) -> Array:
            places = obs["places"]
            more = {"dials": (places[:, 1:3] + dials) % (3, 2), "switches": (places[:, 3:] + switches) % 2}
            tree = {"button": (places[:, 0] + button) % 3, "levers": obs["levers"] / 2 + levers, "more": more}
            return join(multi_part_actions.Panel.action, tree)

        return totals(multi_part_actions.Panel(8), 9, act)[0]

    assert mean_return() == pytest.approx(3)
    assert [mean_return(button=1), mean_return(dials=1), mean_return(switches=1)] == pytest.approx([2, 2, 2])
    assert mean_return(levers=0.1) == pytest.approx(3 - 0.01)

    def idle(obs: Any) -> Array:
        action = sample(multi_part_actions.Panel.action, 100)
        action[:, 1:3] = 0
        return action

    mean, error = totals(multi_part_actions.Panel(100), 20, idle)
    assert abs(mean - 7 / 6) < 4 * error


def test_crashing_raises_after_20_steps() -> None:
    env = envs.Crashing(1)
    env.reset(0)
    for _ in range(20):
        env.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="the environment broke after 20 steps"):
        env.step(np.zeros(1, np.int64))


WORKERS = """
import sys
from multiprocessing import get_context
import numpy as np
from rlplug_core.nets.actions import join, sample
from rlplug_core.testing import envs, multi_part_actions

def play(name):
    env = getattr(envs, name)(1)
    env.reset(0)
    for _ in range(30):
        env.step(np.zeros(1, np.int64))

for name in ("Exiting", "CrashingWorker", "Hanging"):
    play(name)  # harmless in the parent
    process = get_context("fork").Process(target=play, args=(name,))
    process.start()
    process.join(0.5 if name == "Hanging" else None)
    print(name, process.exitcode)
    process.kill()
    process.join()
"""


def test_faults_happen_only_in_worker_processes() -> None:
    process = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["Exiting", "7", "CrashingWorker", "1", "Hanging", "None"]

"""The small environments behave as they say, keep exact state, and punish whoever keeps their arrays too long."""

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
    """Random legal actions."""
    if isinstance(env, multi_part_actions.MaskedDials):
        return lowest(obs)
    if not isinstance(env.spec.action, spaces.Discrete):
        env.spec.action.seed(int(rng.integers(1000)))
        return sample(env.spec.action, env.num_envs)
    preference = rng.random((env.num_envs, int(env.spec.action.n)))  # type: ignore[attr-defined]
    if isinstance(obs, dict) and "action_mask" in obs:
        preference *= obs["action_mask"]
    chosen: Array = preference.argmax(axis=1)
    return chosen


def play(env: Vector, obs: Any, steps: int) -> tuple[list[Any], Any]:
    rng, told = np.random.default_rng(1), []
    for _ in range(steps):
        now = env.step(choose(env, obs, rng))
        obs = tree_map(np.copy, now.obs)
        told.append(repr((obs, now.final_obs, now.reward, now.terminated, now.truncated, now.is_first, now.episodes)))
    return told, obs


@for_each("kind", KINDS)
def test_state_is_exact(kind: type[Vector]) -> None:
    env = kind(3)
    assert isinstance(env, Env)
    now = env.reset(4)
    told, obs = play(env, tree_map(np.copy, now.obs), 7)
    state = env.state_dict()
    expected, _ = play(env, obs, 20)
    other = kind(3)
    other.load_state_dict(state)
    assert play(other, obs, 20)[0] == expected
    assert "Episode" in "".join(told + expected)


@for_each("kind", KINDS)
def test_the_space_describes_what_is_seen(kind: type[Vector]) -> None:
    env = kind(2)
    obs = env.reset(0).obs
    for row in range(2):
        assert env.spec.obs.contains(tree_map(lambda array, row=row: array[row], obs))
    assert not np.array_equal(first_leaf(kind(9).reset(0).obs), first_leaf(kind(9).reset(1).obs)) or kind in (
        envs.Chain, envs.Truncated, envs.Masked, envs.Bandit, envs.Exiting,
    )  # fmt: skip


@for_each("kind", KINDS)
def test_arrays_become_garbage_in_the_second_next_call(kind: type[Vector]) -> None:
    env = kind(2)
    now = env.reset(0)
    kept, copy = first_leaf(now.obs), first_leaf(now.obs).copy()
    rng = np.random.default_rng(0)
    now = env.step(choose(env, now.obs, rng))
    np.testing.assert_array_equal(kept, copy)
    env.step(choose(env, now.obs, rng))
    assert not np.array_equal(kept, copy)


def totals(env: Vector, steps: int, act: Any) -> tuple[float, float]:
    """Mean return of all episodes, and its standard error."""
    now, found = env.reset(0), []
    for _ in range(steps):
        now = env.step(act(now.obs))
        found += [episode.total for episode in now.episodes]
    return float(np.mean(found)), float(np.std(found) / np.sqrt(len(found)))


def test_chain_values() -> None:
    env, rng = envs.Chain(200), np.random.default_rng(0)
    mean, error = totals(env, 100, lambda obs: rng.integers(0, 2, 200))
    assert abs(mean - 0.5) < 4 * error
    right = envs.Chain(1)
    right.reset(0)
    rewards = [float(right.step(np.ones(1, np.int64)).reward[0]) for _ in range(3)]
    assert rewards == [0, 0, 1]
    now = right.step(np.ones(1, np.int64))
    assert now.obs[0].tolist() == [0, 0, 0, 1, 0]


def test_truncated_never_terminates() -> None:
    env = envs.Truncated(1)
    env.reset(0)
    steps = [env.step(np.zeros(1, np.int64)) for _ in range(10)]
    assert [bool(now.ended) for now in steps] == [False] * 9 + [True]
    assert bool(steps[-1].truncated[0])
    assert not steps[-1].terminated[0]
    assert steps[-1].episodes[0].total == 10


@pytest.mark.parametrize(("kind", "length"), [(envs.Recall, 5), (envs.LongRecall, 12)])
def test_recall_pays_memory_only(kind: type[envs.Recall], length: int) -> None:
    env = kind(50)
    now = env.reset(0)
    cue, paid = now.obs["cue"][:, 0].copy(), np.zeros(50)
    for number in range(length):
        assert (now.obs["asked"] == (number == length - 1)).all()
        assert number == 0 or not now.obs["cue"].any()
        now = env.step((cue > 0).astype(np.int64))
        paid += now.reward
    assert (paid == 1).all()
    mean, error = totals(env, 100, lambda obs: np.ones(50, np.int64))
    assert abs(mean - 0.5) < 4 * error


def test_masked_pays_the_lower_allowed_action_and_refuses_the_forbidden() -> None:
    env = envs.Masked(4)
    assert totals(env, 8, lambda obs: obs["action_mask"].argmax(axis=1))[0] == 4
    now = env.reset(0)
    with pytest.raises(ValueError, match="forbidden actions were taken in the rows"):
        env.step(now.obs["action_mask"].argmin(axis=1))


def test_one_step_problems() -> None:
    assert totals(envs.Pixels(8), 9, lambda obs: (obs[:, 0, 0].argmax(axis=1) >= 5).astype(np.int64))[0] == 1
    for arm, value in ((0, 0.1), (1, 0.9)):
        mean, error = totals(envs.Bandit(100), 20, lambda obs, arm=arm: np.full(100, arm))
        assert abs(mean - value) < 4 * error
    assert totals(envs.Continuous(8), 9, lambda obs: obs / 2)[0] == pytest.approx(0, abs=1e-12)
    assert totals(envs.Continuous(8), 9, lambda obs: obs / 2 + 0.1)[0] == pytest.approx(-0.01, abs=1e-6)


def lowest(obs: Any) -> Array:
    """The lowest allowed position of each dial."""
    return np.stack([obs["action_mask"][:, :3].argmax(1), obs["action_mask"][:, 3:].argmax(1)], 1)


def test_dials_and_switches_pay_for_each_part() -> None:
    assert totals(multi_part_actions.Dials(8), 9, lambda obs: obs.copy())[0] == 1
    assert totals(multi_part_actions.Switches(8), 9, lambda obs: obs.copy())[0] == 1
    assert totals(multi_part_actions.Switches(8), 9, lambda obs: 1 - obs)[0] == 0
    for kind, chance in ((multi_part_actions.Dials, 5 / 12), (multi_part_actions.Switches, 1 / 2)):
        mean, error = totals(kind(100), 20, lambda obs, kind=kind: sample(kind.action, 100))
        assert abs(mean - chance) < 4 * error


def test_masked_dials_pay_the_lowest_allowed_position_and_refuse_the_forbidden() -> None:
    env = multi_part_actions.MaskedDials(4)
    assert totals(env, 8, lowest)[0] == 4
    obs = env.reset(0).obs
    with pytest.raises(ValueError, match="forbidden actions were taken in the rows"):
        env.step(np.stack([obs["action_mask"][:, :3].argmin(1), obs["action_mask"][:, 3:].argmax(1)], 1))


def test_a_panel_pays_for_each_part() -> None:
    def doing(button: int = 0, levers: float = 0.0, dials: int = 0, switches: int = 0) -> float:
        """The return of what is right, but for what is added."""

        def act(obs: Any) -> Array:
            places = obs["places"]
            more = {"dials": (places[:, 1:3] + dials) % (3, 2), "switches": (places[:, 3:] + switches) % 2}
            tree = {"button": (places[:, 0] + button) % 3, "levers": obs["levers"] / 2 + levers, "more": more}
            return join(multi_part_actions.Panel.action, tree)

        return totals(multi_part_actions.Panel(8), 9, act)[0]

    assert doing() == pytest.approx(3)
    assert [doing(button=1), doing(dials=1), doing(switches=1)] == pytest.approx([2, 2, 2])
    assert doing(levers=0.1) == pytest.approx(3 - 0.01)

    def idle(obs: Any) -> Array:
        action = sample(multi_part_actions.Panel.action, 100)
        action[:, 1:3] = 0
        return action

    mean, error = totals(multi_part_actions.Panel(100), 20, idle)
    assert abs(mean - 7 / 6) < 4 * error


def test_crashing_raises_when_it_says() -> None:
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


def test_faults_strike_worker_processes_only() -> None:
    process = subprocess.run([sys.executable, "-c", WORKERS], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["Exiting", "7", "CrashingWorker", "1", "Hanging", "None"]

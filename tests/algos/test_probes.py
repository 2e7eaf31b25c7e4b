"""Every value-based algorithm reaches the known action values of small processes, each within one percent.

The observations are one-hot and the networks linear, so that only the algorithm matters. The
exception is IQN: its linear network would share one quantile function per state among all actions. Sums of
rewards over several steps are not corrected for the policy that collected them, so algorithms that use them learn the
best values only if later actions do not matter: on `Fork`, where only the first one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.testing.tabular import Drift, Fork, Tabular, Trap
from rlplug_core.types import Array
from tests.algos.test_options import ALGORITHMS

GAMMA = 0.9
SHARED = {
    "gamma": GAMMA,
    "net.hidden": [],
    "anneal_lr": True,
    "exploration_initial_eps": 1.0,
    "exploration_final_eps": 0.3,
}
REPLAY = {
    **SHARED, "num_envs": 32, "learning_starts": 512, "batch_size": 128, "train_freq": 32, "gradient_steps": 4,
    "buffer_size": 20_000, "learning_rate": 3e-2,
    "target_update_interval": 20, "total_timesteps": 12_000,
}  # fmt: skip
#: Noise stops exploring when it has learned enough, so random actions continue; and importance weights correct
#: priorities from the start, because chances would be weighed wrong otherwise.
NOISY = {"random_steps": REPLAY["total_timesteps"]}
PRIORITIZED = {"priority.beta": 1.0}
#: All returns on this support lead to others on it: nothing is clipped, so the mean is kept.
ATOMS = {"v_min": 0.0, "v_max": 3.2, "n_atoms": 33, "learning_rate": 5e-2}
IMPLICIT = {"net.hidden": [32, 32], "learning_rate": 1e-2, "n_acting_quantiles": 8, "batch_size": 64}
ONLINE = {**SHARED, "num_envs": 64, "learning_rate": 2e-2, "total_timesteps": 80_000}
WORKERS = {
    **ONLINE, "num_envs": 32, "workers": 2, "inline": True, "learning_rate": 1e-2, "target_update_interval": 10,
    "total_timesteps": 60_000,
    "exploration_final_eps_others": [],
}  # fmt: skip
#: Name to the options for processes in which every action matters; add a line for each new name.
LEARNERS: dict[str, dict[str, Any]] = {
    "dqn": REPLAY, "ddqn": REPLAY, "dueling-dqn": REPLAY, "per-dqn": {**REPLAY, **PRIORITIZED},
    "noisy-dqn": {**REPLAY, **NOISY}, "c51": {**REPLAY, **ATOMS}, "qrdqn": {**REPLAY, "n_quantiles": 16},
    "iqn": {**REPLAY, **IMPLICIT}, "vqn": ONLINE, "nstep-q": {**WORKERS, "n_steps": 1},
}  # fmt: skip
#: And those that sum rewards.
SUMMING: dict[str, dict[str, Any]] = {
    "nstep-dqn": REPLAY,
    "apex": {**REPLAY, **PRIORITIZED, "runner": "sync"},
    "rainbow": {**REPLAY, **NOISY, **PRIORITIZED, **ATOMS, "v_max": 4.0, "n_atoms": 26},
    "rainbow-iqn": {**REPLAY, **NOISY, **PRIORITIZED, **IMPLICIT},
    "nstep-q": {**WORKERS, "n_steps": 3, "replay_ratio": 1.0, "exploration_final_eps": 0.6},
}
#: Algorithms that sum rewards, with parts of other names that the trap tests; `rainbow` has both in the plain run.
JOINED = ("apex", "rainbow-iqn")
PROCESSES = {"trap": Trap, "drift": Drift}


def learned_values(runner: Any, process: type[Tabular]) -> np.ndarray[Any, Any]:
    """Return the learned action values [S, A] of the states that are not terminal."""
    learner = runner.snapshot()
    seen = torch.eye(len(process.terminal))[torch.from_numpy(~process.terminal)]
    with torch.no_grad():
        values: np.ndarray[Any, Any] = learner.q_network(seen).numpy()
    return values


def error(runner: Any, process: type[Tabular], epsilon: float = 0.0) -> float:
    """Return the largest relative error of an action value; values of 0 are relative to the largest value.

    The known values are those of the best policy, or of one with random actions at `epsilon`.
    """
    wanted = process.values(GAMMA, epsilon)[~process.terminal]
    share = np.where(wanted == 0, np.abs(wanted).max(), np.abs(wanted))
    return float((np.abs(learned_values(runner, process) - wanted) / share).max())


def env_of(process: type[Tabular]) -> str:
    return f"{process.__module__}:{process.__name__}"


#: In the trap, truncations and all actions matter; the drift tests one algorithm with replay and the online ones.
DRIFTING = ("dqn", "vqn", "nstep-q")
#: Switches of DQN that `rainbow` has, below.
SWITCHES = ("dueling-dqn", "per-dqn", "noisy-dqn")


@pytest.mark.parametrize(
    ("name", "process"),
    [
        pytest.param(name, PROCESSES[process], id=f"{name}-{process}", marks=() if plain else pytest.mark.slow)
        for name in LEARNERS
        for process, plain in (("trap", name not in SWITCHES), ("drift", name in DRIFTING))
    ],
)
def test_reaches_the_best_action_values(train_runner: Callable[..., Any], name: str, process: type[Tabular]) -> None:
    runner = train_runner(name, env_of(process), **LEARNERS[name])
    assert error(runner, process) < 0.01


#: Options that online learners share with replay; noise needs random steps, as it stops when it has learned enough.
WAYS: dict[str, dict[str, Any]] = {
    "softmax": {"softmax_temperature": 1.0},
    "huber": {"loss": "huber"},
    "noisy": {"noisy": "independent", "random_steps": ONLINE["total_timesteps"]},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_online_learners_reach_them_with_all_ways_to_explore(
    train_runner: Callable[..., Any], way: dict[str, Any]
) -> None:
    assert error(train_runner("vqn", env_of(Trap), **{**ONLINE, **way}), Trap) < 0.01


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in JOINED else ()) for name in SUMMING]
)
def test_sums_of_rewards_reach_them_if_later_actions_do_not_matter(train_runner: Callable[..., Any], name: str) -> None:
    """Over five seeds values were up to 0.016 off; with sampled quantiles and noisy weights 0.03."""
    bar = 0.04 if name == "rainbow-iqn" else 0.02
    assert error(train_runner(name, env_of(Fork), **SUMMING[name]), Fork) < bar


def test_all_value_based_names_are_tested() -> None:
    named = {name for name, cls in ALGORITHMS.items() if cls.__module__.startswith("rlplug_algos.value.")}
    recurrent = {"r2d2"}  # its values depend on the memory, not only on the observation
    parallel = {"pqn"}  # tests/cli/test_tensors.py
    assert named == LEARNERS.keys() | SUMMING.keys() | recurrent | parallel | {"vsarsa"}


@pytest.mark.parametrize(
    ("process", "bar"),
    [pytest.param(Drift, 0.01, id="drift", marks=pytest.mark.slow), pytest.param(Trap, 0.03, id="trap")],
)
def test_sarsa_reaches_the_values_of_the_exploring_policy(
    train_runner: Callable[..., Any], process: type[Tabular], bar: float
) -> None:
    """These are not the best values; truncations, a third of the steps in the trap, bootstrap from the expected value.

    Actions are random, and so are the values: other seeds were 0.008 off in the first and 0.02 in the second.
    """
    runner = train_runner(
        "vsarsa",
        env_of(process),
        **{**ONLINE, "exploration_initial_eps": 0.3, "learning_rate": 1e-2, "total_timesteps": 160_000},
    )
    assert error(runner, process, epsilon=0.3) < bar
    assert error(runner, process) > 0.1


@pytest.mark.parametrize("process", [pytest.param(Drift, id="drift", marks=pytest.mark.slow), Trap])
def test_sarsa_reaches_the_best_values_as_exploration_ends(
    train_runner: Callable[..., Any], process: type[Tabular]
) -> None:
    """Only of the best actions: the others are no longer taken, so their values are those of an earlier policy."""
    options = {
        **ONLINE,
        "learning_rate": 5e-2,
        "exploration_initial_eps": 0.5,
        "exploration_final_eps": 0.0,
        "exploration_fraction": 0.6,
    }
    values = learned_values(train_runner("vsarsa", env_of(process), **options), process)
    wanted = process.values(GAMMA)
    wanted = wanted[~process.terminal]
    assert values.argmax(-1).tolist() == wanted.argmax(-1).tolist()
    assert values.max(-1) == pytest.approx(wanted.max(-1), rel=0.01)


def test_truncation_as_termination_fails_the_trap(
    train_runner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is made for this mistake, which would choose the wrong action."""
    move = Trap.move

    def move_with_mistake(self: Trap, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, truncated = move(self, action)
        return reward, terminated | truncated, truncated

    monkeypatch.setattr(Trap, "move", move_with_mistake)
    runner = train_runner("vqn", env_of(Trap), **{**LEARNERS["vqn"], "total_timesteps": 40_000})
    assert Trap.values(GAMMA)[0].argmax() == 1
    assert learned_values(runner, Trap)[0].argmax() == 0
    assert error(runner, Trap) > 0.5

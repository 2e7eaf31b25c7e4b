"""Every value-based algorithm reaches the known action values of small processes within one per cent.

The observations are one-hot and the networks linear, so that nothing but the algorithm stands between it and them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core.testing.tabular import Drift, Tabular, Trap
from rlplug_core.types import Array

GAMMA = 0.9
SHARED = {"gamma": GAMMA, "net.hidden": [], "anneal": True, "epsilon_start": 1.0, "epsilon_end": 0.3}
REPLAY = {
    **SHARED, "rows": 8, "start": 400, "batch": 64, "every": 8, "updates": 2, "capacity": 20_000, "lr": 2e-2,
    "target_every": 20, "total_steps": 16_000,
}  # fmt: skip
ONLINE = {**SHARED, "rows": 16, "lr": 1e-2, "total_steps": 50_000}
#: Algorithm to the options that suit these processes; whoever adds an algorithm adds a line.
LEARNERS: dict[str, dict[str, Any]] = {
    "dqn": REPLAY,
    "vqn": ONLINE,
    "nstep-q": {**ONLINE, "lr": 3e-3, "inline": True, "rows": 8, "steps": 1, "target_every": 20, "epsilon_others": []},
}
#: Those that learn distributions take longer, so each has the process that says most about it in the time: `iqn`, whose
#: drawn shares are noise of their own, the one without chance.
DISTRIBUTIONAL: dict[str, tuple[type[Tabular], dict[str, Any]]] = {
    "c51": (Drift, {**REPLAY, "v_min": 0.0, "v_max": 3.2, "atoms": 33, "total_steps": 10_000}),
    "qrdqn": (Drift, {**REPLAY, "quantiles": 16, "total_steps": 8_000}),
    "iqn": (Trap, {**REPLAY, "total_steps": 6_000}),
}
PROCESSES = {"trap": Trap, "drift": Drift}


def found(runner: Any, process: type[Tabular]) -> np.ndarray[Any, Any]:
    """The action values [S, A] that were learnt of the states that are not terminal."""
    learner = runner.snapshot()
    seen = torch.eye(len(process.terminal))[torch.from_numpy(~process.terminal)]
    with torch.no_grad():
        values: np.ndarray[Any, Any] = learner.online(seen).numpy()
    return values


def error(runner: Any, process: type[Tabular], epsilon: float = 0.0) -> float:
    """The largest error of an action value, as a share of the largest value."""
    wanted = process.values(GAMMA, epsilon)[~process.terminal]
    return float(np.abs(found(runner, process) - wanted).max() / np.abs(wanted).max())


def where(process: type[Tabular]) -> str:
    return f"{process.__module__}:{process.__name__}"


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
@pytest.mark.parametrize("name", LEARNERS)
def test_best_action_values_are_reached(trained: Callable[..., Any], name: str, process: type[Tabular]) -> None:
    runner = trained(name, where(process), **LEARNERS[name])
    assert error(runner, process) < 0.01


@pytest.mark.parametrize("name", DISTRIBUTIONAL)
def test_means_of_the_distributions_are_the_best_action_values(trained: Callable[..., Any], name: str) -> None:
    process, options = DISTRIBUTIONAL[name]
    assert error(trained(name, where(process), **options), process) < 0.01


def test_sarsa_reaches_the_values_of_the_policy_that_explores(trained: Callable[..., Any]) -> None:
    """Which are others than the best."""
    runner = trained("vsarsa", where(Drift), **{**ONLINE, "epsilon_start": 0.3})
    assert error(runner, Drift, epsilon=0.3) < 0.01
    assert error(runner, Drift) > 0.03


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_sarsa_reaches_the_best_values_as_exploration_ends(trained: Callable[..., Any], process: type[Tabular]) -> None:
    """Of the best actions: the others are taken no more, so their values stay those of a policy that is gone."""
    options = {**ONLINE, "lr": 5e-2, "epsilon_start": 0.5, "epsilon_end": 0.0, "epsilon_until": 0.6}
    values, wanted = found(trained("vsarsa", where(process), **options), process), process.values(GAMMA)
    wanted = wanted[~process.terminal]
    assert values.argmax(-1).tolist() == wanted.argmax(-1).tolist()
    assert values.max(-1) == pytest.approx(wanted.max(-1), rel=0.01)


def test_a_cut_that_is_taken_for_an_end_falls_into_the_trap(
    trained: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the process is for: the mistake would choose the wrong action."""
    move = Trap.move

    def mistaken(self: Trap, action: Array) -> tuple[Array, Array, Array]:
        reward, terminated, truncated = move(self, action)
        return reward, terminated | truncated, truncated

    monkeypatch.setattr(Trap, "move", mistaken)
    runner = trained("vqn", where(Trap), **{**LEARNERS["vqn"], "total_steps": 20_000})
    assert Trap.values(GAMMA)[0].argmax() == 1
    assert found(runner, Trap)[0].argmax() == 0
    assert error(runner, Trap) > 0.5

"""What is remarked on before a run that does what was asked for."""

from __future__ import annotations

import pytest

from rlplug_core.loop.plan import Plan
from rlplug_core.runs import remarks as module
from rlplug_core.runs.remarks import remarks

CHAIN = "rlplug_core.testing.envs:Chain"


def remarked(algorithm: str, values: dict[str, object]) -> list[str]:
    return list(remarks(Plan.make(algorithm, CHAIN, values)))


def test_a_minibatch_larger_than_a_rollout_is_remarked_on() -> None:
    values = {"n_steps": 32, "num_envs": 8}
    (said,) = remarked("ppo", {**values, "batch_size": 7777})
    assert said.startswith("batch_size is 7,777, and a rollout has 256 steps")
    assert remarked("ppo", {**values, "batch_size": 256}) == []


def test_more_processes_than_cores_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    assert remarked("a3c", {"runner": "async", "workers": 2}) == []
    assert remarked("a3c", {"runner": "async", "workers": 64, "inline": True}) == []
    assert remarked("a3c", {"runner": "async", "workers": 64}) == [
        "workers is 64, and this machine has 2 cores: they will take turns, at no more speed"
    ]
    (said,) = remarked("a2c", {"env_workers": 3})
    assert said.startswith("env_workers is 3")

"""A signal while a run joins a Ray cluster stops the run; Ray turns SIGTERM into `sys.exit` then."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from rlplug_core.errors import Stopped


def fake_module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(names)
    return module


def test_signal_while_joining_a_cluster_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def init(**arguments: Any) -> None:
        sys.exit(15)

    exceptions = fake_module("ray.exceptions", RayError=RuntimeError, RayTaskError=RuntimeError)
    fakes = [
        fake_module("ray", init=init, is_initialized=lambda: False, shutdown=lambda: calls.append("shutdown")),
        exceptions,
        fake_module("ray.job_config", JobConfig=lambda **arguments: None),
        fake_module("ray.util"),
        fake_module("ray.util.scheduling_strategies", NodeAffinitySchedulingStrategy=None),
    ]
    for fake in fakes:
        monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.delitem(sys.modules, "rlplug_core.loop.ray_cluster", raising=False)
    cluster = import_module("rlplug_core.loop.ray_cluster")
    with pytest.raises(Stopped, match="stopped by SIGTERM while it joined a Ray cluster") as raised:
        cluster.join("ray://127.0.0.1:9", 1.0)
    monkeypatch.delitem(sys.modules, "rlplug_core.loop.ray_cluster")
    assert (raised.value.exit_code, calls) == (143, ["shutdown"])

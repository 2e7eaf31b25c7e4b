"""A signal while a Ray cluster is joined stops the run; Ray turns SIGTERM into `sys.exit` meanwhile."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from rlplug_core.errors import Stopped


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(names)
    return made


def test_a_signal_while_a_cluster_is_joined_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    def init(**arguments: Any) -> None:
        sys.exit(15)

    exceptions = module("ray.exceptions", RayError=RuntimeError, RayTaskError=RuntimeError)
    fakes = [
        module("ray", init=init, is_initialized=lambda: False, shutdown=lambda: left.append("left")),
        exceptions, module("ray.job_config", JobConfig=lambda **arguments: None), module("ray.util"),
        module("ray.util.scheduling_strategies", NodeAffinitySchedulingStrategy=None),
    ]  # fmt: skip
    for fake in fakes:
        monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.delitem(sys.modules, "rlplug_core.loop.ray_cluster", raising=False)
    cluster = import_module("rlplug_core.loop.ray_cluster")
    with pytest.raises(Stopped, match="stopped by SIGTERM while it joined a Ray cluster") as raised:
        cluster.join("ray://127.0.0.1:9", 1.0)
    monkeypatch.delitem(sys.modules, "rlplug_core.loop.ray_cluster")
    assert (raised.value.exit_code, left) == (143, ["left"])

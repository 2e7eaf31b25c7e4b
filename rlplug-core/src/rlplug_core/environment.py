"""What the bits of a run depend on besides its configuration: versions, machine, threads, device."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from rlplug_core.plan import Plan


def environment(plan: Plan) -> dict[str, Any]:
    """What the same bits depend on, besides the configuration."""
    packages = ("rlplug-core", "torch", "numpy", "gymnasium")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "machine": platform.machine(),
        "threads": plan.options.threads,
        "device": plan.options.device,
        "acting": plan.options.acting,
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What the bits depend on and has changed, one sentence each."""
    flat = [
        {**{key: value for key, value in side.items() if key != "versions"}, **side["versions"]} for side in (then, now)
    ]
    return [
        f"{key} was {flat[0][key]} and is {flat[1].get(key)}" for key in flat[0] if flat[0][key] != flat[1].get(key)
    ]

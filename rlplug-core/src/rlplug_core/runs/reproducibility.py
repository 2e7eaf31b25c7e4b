"""Record what bit-exact resume depends on, except the configuration: versions, machine, threads, device."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError
from typing import Any

import torch

from rlplug_core.accelerator import room
from rlplug_core.config.import_string import is_target
from rlplug_core.errors import BadCheckpoint, plain
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins import find
from rlplug_core.processor import KERNELS, processor

#: Returns the version of an installed distribution; cached, because each checkpoint records it.
version = cache(importlib.metadata.version)


def environment(plan: Plan) -> dict[str, Any]:
    """Return what bit-exact resume depends on, except the configuration."""
    name = plan.algorithm
    plugin = () if is_target(name) else (find("algorithms", name).distribution,)
    packages = ("rlplug-core", *plugin, "torch", "numpy", "gymnasium")
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in packages},
        },
        "machine": platform.machine(),
        "cpu": _cpu(),
        "loops": room().loop_library(),
        "threads": plan.options.threads,
        "device": plan.options.device,
        "runner": plan.runner,
        "inference_backend": plan.options.inference_backend,
    }


def recorded_environment(
    name: str,
    manifest: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the result of `environment` that the manifest of the checkpoint `name` contains.

    Raises:
        BadCheckpoint: the manifest has none, so it is unknown whether a resume is exact.
    """
    recorded: Mapping[str, Any] | None = manifest.get("environment")
    if recorded is None:
        raise BadCheckpoint(
            f"checkpoint {name} is damaged: manifest.json has no environment; remove the checkpoint to use an "
            "older one"
        )
    return recorded


def differences(
    recorded: Mapping[str, Any],
    current: Mapping[str, Any],
) -> list[str]:
    """Return one sentence for each change that prevents a bit-exact resume."""
    before = _with_versions(recorded)
    after = _with_versions(current)
    return [
        f"{key} was {value} and is {after.get(key)}"
        for key, value in before.items()
        if value != after.get(key)
    ]


def _with_versions(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment with each package's version as a separate entry."""
    flat = {**environment, **environment["versions"]}
    del flat["versions"]
    return flat


def writers(
    recorded: Mapping[str, Any],
    current: Mapping[str, Any],
) -> tuple[str, ...]:
    """Return the packages with another version now, each with its recorded version for pip: `torch==2.10.0`."""
    return tuple(
        f"{name}=={version}"
        for name, version in recorded["versions"].items()
        if name != "python" and version != current["versions"].get(name)
    )


def absent_writers(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages of rlplug and its plugins that a run was made with and that are not installed in its version.

    Args:
        versions: the versions that the run recorded, by package.

    Returns:
        Each as pip installs it, such as `rlplug-mine==0.1.0`.
    """
    common = ("python", "torch", "numpy", "gymnasium")
    installed = {name: _version_here(name) for name in versions if name not in common}
    return tuple(
        f"{plain(name)}=={plain(versions[name])}"
        for name in installed
        if installed[name] != versions[name]
    )


def _version_here(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _cpu() -> str:
    """Return the processor and the kernels that compute matrix products."""
    maker, family = processor()
    kernels = f", {kernel_name} in OpenBLAS" if (kernel_name := os.environ.get(KERNELS)) else ""
    return f"{maker} {family} {torch.backends.cpu.get_cpu_capability()}{kernels}".strip()

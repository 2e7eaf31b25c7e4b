"""rlplug-core: the protocols, runners and plugin contract of rlplug.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlplug_core.algorithm import Algorithm, Context
    from rlplug_core.config import Config
    from rlplug_core.hooks import hookimpl
    from rlplug_core.policy import Policy
    from rlplug_core.run import Run, load, resume, train
    from rlplug_core.transform import Transform

__version__ = "0.1.0"

_HOMES = {
    "Algorithm": "algorithm", "Config": "config", "Context": "algorithm", "Policy": "policy", "Run": "run",
    "Transform": "transform", "hookimpl": "hooks", "load": "run", "resume": "run", "train": "run",
}  # fmt: skip

__all__ = ["Algorithm", "Config", "Context", "Policy", "Run", "Transform", "hookimpl", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlplug_core' has no attribute '{name}'")
    return getattr(import_module(f"rlplug_core.{_HOMES[name]}"), name)

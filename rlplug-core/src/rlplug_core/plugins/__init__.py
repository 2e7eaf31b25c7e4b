"""The public door: how the algorithms, environments and further plugins of any distribution are found and loaded.

Importing this imports no plugin, no torch and no gymnasium; only naming a contribution imports its plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlplug_core.config.import_string import absolute, source_file
from rlplug_core.plugins.discovery import records, refresh, scan
from rlplug_core.plugins.envs import env_ids, make_env
from rlplug_core.plugins.names import find, ids
from rlplug_core.plugins.records import Record
from rlplug_core.plugins.resolve import algorithm, controller, wrapper

if TYPE_CHECKING:
    from rlplug_core.plugins.hooks import Hooks

__all__ = [
    "Hooks",
    "Record",
    "absolute",
    "algorithm",
    "controller",
    "env_ids",
    "find",
    "ids",
    "make_env",
    "records",
    "refresh",
    "scan",
    "source_file",
    "wrapper",
]


def __getattr__(name: str) -> object:
    """`Hooks` on first use: listing plugins does not need pluggy."""
    if name == "Hooks":
        from rlplug_core.plugins.hooks import Hooks

        return Hooks
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")

"""Plugins: finds and loads the algorithms, environments and other contributions of installed distributions.

Importing this room imports no plugin, torch or gymnasium. A plugin is imported when a command names it.
"""

from __future__ import annotations

from rlplug_core.doors import open_door
from rlplug_core.plugins.discovery import (
    records as records,
)  # not by the door, because a module has this name

__getattr__, __dir__, __all__ = open_door(__name__)

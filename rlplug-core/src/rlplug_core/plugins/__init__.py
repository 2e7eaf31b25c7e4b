"""The public door: how the algorithms, environments and further plugins of any distribution are found and loaded.

Importing this imports no plugin, no torch and no gymnasium; only naming a contribution imports its plugin.
"""

from __future__ import annotations

from rlplug_core.doors import open_door
from rlplug_core.plugins.discovery import records as records  # now, because a module has its name

__getattr__, __dir__, __all__ = open_door(__name__)

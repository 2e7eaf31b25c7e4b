"""Shared agents: the source words, the files of an agent with their limits and hashes, and the places that have them.

Nothing here loads or plays an agent; `runs` does.
"""

from __future__ import annotations

from rlplug_core.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)

"""Plays episodes with a policy, shows them in a window and films them.

Nothing here influences training.
"""

from __future__ import annotations

from rlplug_core.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)

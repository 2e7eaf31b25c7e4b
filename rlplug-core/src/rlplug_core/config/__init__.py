"""Options: how an author declares them, how they are parsed, and the schedules that they may follow.

Nothing here knows networks, environments or runs.
"""

from __future__ import annotations

from rlplug_core.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)

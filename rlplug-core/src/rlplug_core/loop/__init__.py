"""The training loop: actors, the runners `sync`, `async`, `decoupled`, evaluation, controllers, events by the clock.

Nothing here writes files; `runs` records what happens.
"""

from __future__ import annotations

from rlplug_core.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)

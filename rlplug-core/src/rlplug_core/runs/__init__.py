"""Runs: `train`, `resume` and `load`, the run directory with its checkpoints and its journal.

Nothing here steps an environment itself; `loop` does.
"""

from __future__ import annotations

from rlplug_core.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__)

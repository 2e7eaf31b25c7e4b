"""Loops of update rules and estimators: numba's, where it is installed, in the place of several calls of numpy's."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from rlplug_core.nets.loops import available


@cache
def learning_loops() -> ModuleType | None:
    """Return the module of numba's loops for update rules and estimators, or None."""
    if not available():
        return None
    from rlplug_core.learning import compiled

    return compiled

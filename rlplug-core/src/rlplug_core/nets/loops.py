"""Loops over numbers: numba's, where it is installed, in the place of several calls of numpy's."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType
from typing import TypeAlias

from rlplug_core.types import Array

#: For values [B, F] of a layer before its bias [F]: the activation of both in their place; and for slopes [B, F] at
#: such values: those below, into an array [B, F], with their sum over rows added to an array [F].
Pair: TypeAlias = tuple[Callable[[Array, Array], None], Callable[[Array, Array, Array, Array], None]]


@cache
def available() -> bool:
    """Return whether numba is installed, and not told to leave loops to Python."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" and find_spec("numba") is not None


def pair(activation: str) -> Pair | None:
    """Return numba's loops for an activation, or None where there are none."""
    if not available():
        return None
    from rlplug_core.nets.compiled import PAIRS  # here alone, as numba takes half a second and 65 MB

    return PAIRS.get(activation)


@cache
def head_loops() -> ModuleType | None:
    """Return the module of numba's loops for heads and losses, or None."""
    if not available():
        return None
    from rlplug_core.nets import compiled_heads

    return compiled_heads


def made_by() -> str:
    """Return what makes loops here, for the record of a run: bits differ between them."""
    return f"numba {version('numba')}" if available() else "numpy"

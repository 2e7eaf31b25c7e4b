"""Loops over numbers: numba's, where it is installed, in the place of several calls of numpy's."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import TypeAlias

import torch

from rlplug_core.types import Array

#: For values [B, F] of a layer before its bias [F]: the activation of both in their place; and for slopes [B, F] at
#: such values: those below, into an array [B, F], with their sum over rows added to an array [F].
Pair: TypeAlias = tuple[
    Callable[[Array, Array], None], Callable[[Array, Array, Array, Array], None]
]
#: The simplest of numba's pools of threads must not be asked by two threads at once.
TURN = Lock()


def available() -> bool:
    """Return whether loops are numba's."""
    return not why_not_numba()


@cache
def why_not_numba() -> str:
    """Return why loops are not numba's, or nothing where they are."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return "NUMBA_DISABLE_JIT is set"
    if find_spec("numba") is None:
        return "numba is not installed"
    try:  # an older numba may be there for something else, and refuse this numpy
        import_module("numba")
    except ImportError as error:
        return f"numba {version('numba')} is no use here: {error}"
    return ""


def pair(activation: str) -> Pair | None:
    """Return numba's loops for an activation, or None where there are none."""
    if not available():
        return None
    from rlplug_core.fast.loops.layers import PAIRS  # here alone, since it needs numba

    return PAIRS.get(activation)


@cache
def head_loops() -> ModuleType | None:
    """Return the module of numba's loops for heads and losses, or None."""
    if not available():
        return None
    from rlplug_core.fast.loops import heads

    return heads


@cache
def acting_loops() -> ModuleType | None:
    """Return the module of numba's loops for acting, or None."""
    if not available():
        return None
    from rlplug_core.fast.loops import acting

    return acting


@cache
def memory_loops() -> ModuleType | None:
    """Return the module of numba's loops for recurrent cells, or None."""
    if not available():
        return None
    from rlplug_core.fast.loops import memory

    return memory


@cache
def learning_loops() -> ModuleType | None:
    """Return the module of numba's loops for update rules and estimators, or None."""
    if not available():
        return None
    from rlplug_core.fast.loops import learning

    return learning


def call_on_threads(function: Callable[..., None], threads: int, *arguments: object) -> None:
    """Call what was compiled `on_threads` on at most so many of numba's."""
    import numba  # here alone, since it may not be there

    with TURN:
        _begin_threads()
        before = numba.get_num_threads()
        wanted = min(threads, numba.config.NUMBA_NUM_THREADS)
        if before == wanted:  # to set them takes a while
            function(*arguments)
            return
        numba.set_num_threads(wanted)
        try:
            function(*arguments)
        finally:
            numba.set_num_threads(before)


@cache
def _begin_threads() -> None:
    """Let numba begin its threads, which gives OpenMP as many as the machine has, and torch back its own number."""
    import numba

    before = torch.get_num_threads()
    numba.get_num_threads()  # the first call begins them
    torch.set_num_threads(before)


@cache
def has_scipy() -> bool:
    """Return whether there are products for whole passes on threads, which numba takes from SciPy."""
    return find_spec("scipy") is not None


def made_by(threads: int = 1) -> str:
    """Return what makes loops on so many threads here, for the record of a run: bits differ between them."""
    if not available():
        return "numpy"
    passes = threads > 1 and has_scipy()
    return f"numba {version('numba')}" + (f" and SciPy {version('scipy')}" if passes else "")

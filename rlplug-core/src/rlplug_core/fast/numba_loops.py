"""Finds the modules of numba's loops; one compiled loop does the work of several NumPy calls."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from threading import Lock
from types import ModuleType
from typing import Literal, TypeAlias

import torch

from rlplug_core.fast.matmul import numpy_uses_one_thread
from rlplug_core.types import Array

#: Two loops of an activation. The first one adds a bias [F] to values [B, F] and replaces them by their activation. The
#: second one takes gradients [B, F] at the activation and its values [B, F], writes the gradients before it into an
#: array [B, F], and adds their sum over rows to an array [F].
ActivationLoops: TypeAlias = tuple[
    Callable[[Array, Array], None], Callable[[Array, Array, Array, Array], None]
]
#: The description of speed if NumPy may use several threads for a matrix product.
SLOW = (
    "fast, with torch's products: numpy was imported before rlplug and may use several threads; set "
    "OPENBLAS_NUM_THREADS=1"
)
#: Two threads must not use numba's simplest thread pool, workqueue, at once.
LOCK = Lock()


def available() -> bool:
    """Return whether numba compiles loops here."""
    return not numba_problem()


@cache
def numba_problem() -> str:
    """Return why numba compiles no loops here, or ""."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
        return "NUMBA_DISABLE_JIT is set"
    if find_spec("numba") is None:
        return "numba is not installed"
    try:  # an older numba may refuse this NumPy
        import_module("numba")
    except ImportError as error:
        return f"numba {version('numba')} cannot be used here: {error}"
    return ""


@cache
def loop_module(
    name: Literal["acting", "heads", "layers", "learning", "memory"],
) -> ModuleType | None:
    """Return a module of `fast.loops`, or None without numba, which it imports."""
    return import_module(f"rlplug_core.fast.loops.{name}") if available() else None


def activation_loops(activation: str) -> ActivationLoops | None:
    """Return the loops of an activation, or None if there are none."""
    layers = loop_module("layers")
    return None if layers is None else layers.ACTIVATIONS.get(activation)


def call_on_threads(
    function: Callable[..., None],
    threads: int,
    *arguments: object,
) -> None:
    """Call a function that was compiled `on_threads`, on at most this number of numba's threads."""
    import numba

    with LOCK:
        _start_threads()
        before = numba.get_num_threads()
        number = min(threads, numba.config.NUMBA_NUM_THREADS)
        if before == number:  # setting the number takes time
            function(*arguments)
            return
        numba.set_num_threads(number)
        try:
            function(*arguments)
        finally:
            numba.set_num_threads(before)


@cache
def _start_threads() -> None:
    """Start numba's threads, and restore the number of torch's threads, which numba sets to the number of cores."""
    import numba

    before = torch.get_num_threads()
    numba.get_num_threads()  # the first call starts them
    torch.set_num_threads(before)


@cache
def has_scipy() -> bool:
    """Return whether SciPy is installed: numba uses its products in passes through networks."""
    return find_spec("scipy") is not None


def loop_library() -> str:
    """Return the libraries that compute loops, for the record of a run: others may give other bits."""
    if not available():
        return "numpy"
    return f"numba {version('numba')}" + (f" and SciPy {version('scipy')}" if has_scipy() else "")


@cache
def describe_speed(threads: int) -> str:
    """Describe how losses are computed with this number of torch threads, and why not faster."""
    if not numpy_uses_one_thread():
        return SLOW
    if missing := numba_problem():
        return f"fast; {missing}" if "cannot be used" in missing else "fast"
    if threads == 1 or has_scipy():
        return "fast, with loops by numba"
    return "fast, with loops by numba; without SciPy, threads share single products"

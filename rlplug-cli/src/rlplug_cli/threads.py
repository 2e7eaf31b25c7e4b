"""The number of threads of NumPy; a command sets it before anything imports NumPy."""

from __future__ import annotations

import os


def one_thread() -> None:
    """Let NumPy multiply matrices on one thread, unless the user set a number."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

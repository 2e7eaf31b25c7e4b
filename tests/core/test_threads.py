"""Numpy's products get one thread where rlplug is what imports numpy, and keep what a user says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SAY = "import os, rlplug_core; rlplug_core.Config; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
#: A module within, which imports numpy and asks the package for no name.
INNER = "import rlplug_core.loop.events; "


@pytest.mark.parametrize(
    ("first", "told", "found"),
    [("", None, "1"), ("", "2", "2"), ("import numpy; ", None, "None"), (INNER, None, "1"), (INNER, "2", "2")],
)
def test_threads_of_numpys_products(first: str, told: str | None, found: str) -> None:
    given = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    given |= {} if told is None else {"OPENBLAS_NUM_THREADS": told}
    said = subprocess.run([sys.executable, "-c", first + SAY], env=given, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == found

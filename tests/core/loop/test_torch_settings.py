"""What a process that trains sets for itself."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

#: Tensors of an update of convolutions, freed after it: 96 MiB, more than glibc would keep by itself.
UPDATES = """
import resource
import torch
from rlplug_core.loop.torch_settings import set_torch

def update():
    tensors = [torch.ones(2**20) for _ in range(24)]

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

set_torch(1)
for _ in range(5):
    update()
first = pages()
for _ in range(10):
    update()
print((pages() - first) // 10)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_an_update_has_the_memory_of_the_last_one() -> None:
    """By itself the C library hands it back, and every update waits for thousands of pages that are emptied first."""
    script = [sys.executable, "-c", UPDATES]
    pages = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert int(pages) < 10

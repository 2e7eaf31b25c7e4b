"""The settings of a process that trains, in one place: threads and denormal numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def set_torch(threads: int) -> None:
    """Give torch `threads` threads, one being fastest for small networks, and round denormal numbers to zero.

    Second moments of weights that never move decay into denormals, on which the processor is slow: Adam took two to
    three times as long on a DQN with dead units.
    """
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """`set_torch`, and the caller's threads again afterwards."""
    before = torch.get_num_threads()
    set_torch(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)

"""Tensors and files in the memory that the processes of a run share."""

from __future__ import annotations

import os

from torch import Tensor

from rlplug_core.errors import RlplugError

#: What to do about it: containers often have only 64 MB.
FULL = (
    "the processes of this run need more shared memory than /dev/shm has; give it more, as with 'docker run "
    "--shm-size=2g', or use fewer processes, smaller chunks or --inline"
)


def share_tensor(tensor: Tensor) -> Tensor:
    """Move a tensor to memory that other processes see, and return it.

    Raises:
        RlplugError: there is not enough.
    """
    try:
        tensor.share_memory_()
    except RuntimeError as error:
        if "No space left" not in str(error):
            raise
        raise RlplugError(FULL) from error
    return tensor


def reserve_file(handle: int, size: int) -> None:
    """Give a file in this memory its size; without the reservation, a write beyond what there is kills the process.

    Raises:
        RlplugError: there is not enough.
    """
    if not hasattr(os, "posix_fallocate"):  # macOS and Windows
        os.ftruncate(handle, size)
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        raise RlplugError(FULL) from error

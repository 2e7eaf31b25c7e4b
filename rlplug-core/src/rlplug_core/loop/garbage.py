"""The garbage collector during training."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def freeze_objects() -> Iterator[None]:
    """Collect garbage once, then leave all objects of this moment out of collections until the end of the block.

    With torch, numba and gymnasium there are 300,000 objects, and each full collection of them stops training for a
    tenth of a second or more. If an outer block or the caller has frozen objects, they stay frozen, and no others are.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()  # garbage of earlier runs, such as replay buffers, would stay in memory for the whole block
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

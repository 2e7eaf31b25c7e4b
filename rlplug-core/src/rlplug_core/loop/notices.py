"""Print the reason for a wait that takes so long that it looks like a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from rlplug_core.errors import warn

#: Seconds that a wait may take without a message.
SILENCE = 2.0
#: The message after a signal.
STOPPING = (
    "stopping: the current update ends and a checkpoint is saved first; a second Ctrl-C or SIGTERM "
    "stops at once"
)


def say_later(sentence: str) -> Timer:
    """Print a sentence after `SILENCE`, unless the returned timer is canceled earlier."""
    timer = Timer(SILENCE, warn, [sentence])
    timer.daemon = True
    timer.start()
    return timer


@contextmanager
def notice(sentence: str) -> Iterator[None]:
    """Print a sentence if the block takes longer than `SILENCE`."""
    timer = say_later(sentence)
    try:
        yield
    finally:
        timer.cancel()

"""Say what is waited for, once a wait has lasted so long that it looks like a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from rlplug_core.errors import warn

#: Seconds of silence that nobody wonders about.
SILENCE = 2.0
#: What a signal makes a run wait for.
STOPPING = (
    "stopping: the current update ends and a checkpoint is saved first; a second Ctrl-C or SIGTERM "
    "stops at once"
)


def say_later(sentence: str) -> Timer:
    """Say a sentence after `SILENCE`, unless the timer that is returned is canceled before."""
    timer = Timer(SILENCE, warn, [sentence])
    timer.daemon = True
    timer.start()
    return timer


@contextmanager
def notice(sentence: str) -> Iterator[None]:
    """Say what is waited for if the block takes longer than `SILENCE`."""
    timer = say_later(sentence)
    try:
        yield
    finally:
        timer.cancel()

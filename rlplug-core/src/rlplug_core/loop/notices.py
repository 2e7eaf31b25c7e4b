"""Print the reason for a wait that takes so long that it looks like a fault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer

from rlplug_core.errors import warn

#: Seconds that a wait may take without a message.
SILENCE = 2.0
#: The message after a signal.
STOP_NOTICE = (
    "stopping: the current update ends and a checkpoint is saved first; a second Ctrl-C or SIGTERM "
    "stops at once"
)
#: The name of a thread that waits to print a sentence.
WAITER = "rlplug-notice"
#: Held while a sentence is printed and during a fork, which would copy the locks of stderr while they are in use.
_printing = Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_printing.acquire,
        after_in_parent=_printing.release,
        after_in_child=_printing.release,
    )


def say_later(sentence: str) -> Timer:
    """Print a sentence after `SILENCE`, unless the returned timer is canceled earlier."""
    timer = Timer(SILENCE, _print, [sentence])
    timer.name = WAITER
    timer.daemon = True
    timer.start()
    return timer


def _print(sentence: str) -> None:
    with _printing:
        warn(sentence)


@contextmanager
def notice(sentence: str) -> Iterator[None]:
    """Print a sentence if the block takes longer than `SILENCE`."""
    timer = say_later(sentence)
    try:
        yield
    finally:
        timer.cancel()

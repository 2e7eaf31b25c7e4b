"""Measure the minimum time of calls in turns, so that a disturbance of the machine slows all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

#: Calls that are measured in turns, by name.
Calls: TypeAlias = dict[str, Callable[[], object]]
ROUNDS = 60
TURNS = 5


def least(calls: Calls) -> dict[str, float]:
    """Return the minimum microseconds of each call, measured in turns with the clock of the thread.

    The order changes from round to round, because a call after the same call each time profits from
    its cache.
    """
    found = dict.fromkeys(calls, np.inf)
    order = random.Random(1)
    for _ in range(ROUNDS):
        for name in order.sample(list(calls), len(calls)):
            call = calls[name]
            call()
            start = time.thread_time()
            for _ in range(TURNS):
                call()
            found[name] = min(found[name], (time.thread_time() - start) / TURNS * 1e6)
    return found

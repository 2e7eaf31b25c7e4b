"""The least time of calls that are measured in turn, so that what disturbs a machine disturbs all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

#: What is measured in turn, by name.
Calls: TypeAlias = dict[str, Callable[[], object]]
ROUNDS = 60
TURNS = 5


def least(calls: Calls) -> dict[str, float]:
    """The least microseconds of each, measured in turn by the thread's own clock.

    The order changes from round to round: whoever always followed the same one would find the cache as that left it.
    """
    found = dict.fromkeys(calls, np.inf)
    order = random.Random(1)
    for _ in range(ROUNDS):
        for name in order.sample(list(calls), len(calls)):
            call = calls[name]
            call()
            began = time.thread_time()
            for _ in range(TURNS):
                call()
            found[name] = min(found[name], (time.thread_time() - began) / TURNS * 1e6)
    return found

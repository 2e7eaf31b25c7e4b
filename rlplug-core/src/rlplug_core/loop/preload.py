"""Imported by the forkserver alone, before it has children: what they start from.

A stop signal for the whole process group is the parent's. `timeout`, `systemctl stop` and batch systems send SIGTERM to
every process of a job at once. If the forkserver or a worker died of it, the parent would see failed workers instead of
a request to save a checkpoint and stop. Both end with the parent.

What is loaded here is shared by all children until they write to it. The garbage collector writes to every object that
it looks at, so it is told to leave these alone: each child takes 20 MiB less.
"""

from __future__ import annotations

import gc
import signal
from importlib import import_module

signal.signal(signal.SIGTERM, signal.SIG_IGN)
import_module("rlplug_core.loop.worker")
import_module("rlplug_core.loop.process_spawner").set_numba_up()
gc.freeze()

"""Imported only by the forkserver, before it has children: they start from its memory.

A stop signal for the whole process group is the parent's. `timeout`, `systemctl stop` and batch systems send SIGTERM to
every process of a job at once. If the forkserver or a worker died of it, the parent would see failed workers instead of
a request to save a checkpoint and stop. Both end with the parent.

All children share the modules loaded here until they write to them. The garbage collector writes to every object that
it looks at, so it is told to skip these: each child takes 20 MiB less.
"""

from __future__ import annotations

import gc
import signal
from importlib import import_module

signal.signal(signal.SIGTERM, signal.SIG_IGN)
import_module("rlplug_core.loop.worker")
import_module("rlplug_core.loop.process_spawner").set_numba_up()
gc.freeze()

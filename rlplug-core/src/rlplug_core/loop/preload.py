"""Imported only by the forkserver, before it forks: its children start with these modules.

Only the parent handles stop signals. `timeout`, `systemctl stop` and batch systems send SIGTERM to every process of a
job. If it killed the forkserver or a worker, the parent would see failed workers instead of a request to save a
checkpoint and stop. Both end with the parent.

All children share the modules loaded here until they write to them. The garbage collector writes to every object that
it checks, so these are frozen: each child takes 20 MiB less.
"""

from __future__ import annotations

import gc
import signal
from importlib import import_module

signal.signal(signal.SIGTERM, signal.SIG_IGN)
import_module("rlplug_core.loop.worker")
import_module("rlplug_core.loop.process_spawner").warm_up_numba()
gc.freeze()

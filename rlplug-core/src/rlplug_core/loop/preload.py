"""Imported by the forkserver alone, before it has children: a stop signal for the whole process group is the parent's.

`timeout`, `systemctl stop` and batch systems send SIGTERM to every process of a job at once. If the forkserver or a
worker died of it, the parent would see failed workers instead of a request to save a checkpoint and stop. Both end with
the parent.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)

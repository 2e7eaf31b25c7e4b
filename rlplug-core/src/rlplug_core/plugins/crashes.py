"""Names the plugin that was being imported when the process died silently: by a segfault, or `os._exit`.

The dead process cannot report it. So a small second process is told which plugin is being imported, and prints its
name if the pipe between them closes too early. It costs 30 ms, and is started for third-party plugins only.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlplug_core.errors import plain

if TYPE_CHECKING:
    import subprocess

#: The small process: it prints the first line again if no second one follows.
_CODE = """
import signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
    if hasattr(signal, name):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
sentence = sys.stdin.readline()
over = sys.stdin.readline()
if sentence and not over:
    sys.stderr.write(sentence)
"""


@contextlib.contextmanager
def name_on_crash(plugin: str, remedy: str) -> Iterator[None]:
    """Import `plugin` inside this block: if the process dies there, stderr names it, with the `remedy`."""
    sentence = f"the process died while {plain(plugin)} was imported: it crashed, or called os._exit; {plain(remedy)}"
    command = [sys.executable, "-I", "-S", "-c", _CODE]
    import subprocess  # 4 modules that commands without a plugin do not need

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as watcher:
        _write_line(watcher, f"rlplug: {sentence}\n")
        try:
            yield
        finally:
            _write_line(watcher, "over\n")


def _write_line(watcher: subprocess.Popen[bytes], line: str) -> None:
    assert watcher.stdin is not None
    with contextlib.suppress(OSError):  # it may have been killed, and then nothing is named
        watcher.stdin.write(line.encode(errors="replace"))
        watcher.stdin.flush()

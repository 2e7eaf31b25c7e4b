"""Commands in forks of one process that has imported what they import: two seconds are spent once, not by each.

    python warm.py serve SOCKET      the process that forks; it says when it is ready
    python warm.py SOCKET WORD...    `rlplug WORD...`, with the directory, the variables and the streams of this process
    python warm.py SOCKET --script FILE    `python -W error FILE`

`commands` starts the first and writes the others into a folder. Signals sent to the last two go to the command, whose
exit code they return.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import shlex
import signal
import site
import socket
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: What the first import of each takes a while.
HEAVY = (
    "torch",
    "gymnasium",
    "rlplug_cli.app",
    "rlplug_cli.commands.run",
    "rlplug_core.loop.build",
    "rlplug_core.runs.api",
)
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def commands(python: str, folder: Path) -> Iterator[str]:
    """Write `rlplug` and `run-script` into a folder, which fork from a process of `python`; yields its socket."""
    import subprocess
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:  # its path is short, as that of a socket must be
        path = str(Path(name) / "door")
        for command, word in (("rlplug", ""), ("run-script", "--script ")):
            client = f"{shlex.quote(python)} -IS {__file__} {path} {word}"
            (folder / command).write_text(f'#!/bin/sh\nexec {client}"$@"\n', encoding="utf-8")
            (folder / command).chmod(0o755)
        limited = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # which is read once; the command does it, but later
        words = [python, "-P", __file__, "serve", path]
        with subprocess.Popen(words, env=limited, text=True, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield path
            server.terminate()


def serve(path: str) -> None:
    """Fork for each connection, until this process is ended."""
    for name in HEAVY:
        __import__(name)
    gc.freeze()  # the collector writes to all objects, and forks share what nobody writes to
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            link, _ = door.accept()
            if os.fork() == 0:
                door.close()
                answer(link)
            link.close()


def answer(link: socket.socket) -> None:
    """Run the command in a child, and say its process id and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, *_ = socket.recv_fds(link, 1 << 20, 3)
    child = os.fork()
    if child == 0:
        link.close()
        become(*json.loads(message), streams)
    link.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(words: list[str], place: str, variables: dict[str, str], streams: Sequence[int]) -> None:
    """Be the command."""
    os.chdir(place)
    os.environ.clear()
    os.environ.update(variables)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    site.addsitedir(sysconfig.get_path("purelib"))  # packages that were installed editable since the start
    if words[:1] == ["--script"]:
        run_script(words[1])
    else:
        from rlplug_cli.__main__ import main

        sys.argv = ["rlplug", *words]
        sys.exit(main())


def run_script(path: str) -> None:
    """Be `python -W error` of a script in the working directory."""
    warnings.resetwarnings()
    warnings.simplefilter("error")
    sys.argv = [path]
    sys.path.insert(0, os.getcwd())
    runpy.run_path(path, run_name="__main__")
    sys.exit()


def call(path: str, words: list[str], variables: dict[str, str], streams: Sequence[int], pass_on: bool = False) -> int:
    """Have a command run there, and return its exit code; with `pass_on` it gets the signals of this process."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        message = json.dumps([words, os.getcwd(), variables]).encode()
        socket.send_fds(link, [message], streams)
        with link.makefile() as said:
            child = int(said.readline())
            for number in PASSED_ON if pass_on else ():
                signal.signal(number, lambda got, frame: os.kill(child, got))
            code = int(said.readline())
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "serve":
        serve(*others)
    else:
        sys.exit(call(first, others, dict(os.environ), (0, 1, 2), pass_on=True))

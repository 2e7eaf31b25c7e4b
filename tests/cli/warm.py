"""Commands in forks of one process that has imported what they import: two seconds are spent once, not by each.

    python warm.py serve SOCKET      the process that forks; it says when it is ready
    python warm.py SOCKET WORD...    `rlplug WORD...`, with the directory, the variables and the streams of this process

Signals sent to the second go to the command, whose exit code it returns.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence

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


def serve(path: str) -> None:
    """Fork for each connection, until this process is ended."""
    for name in HEAVY:
        __import__(name)
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
    from rlplug_cli.__main__ import main

    os.chdir(place)
    os.environ.clear()
    os.environ.update(variables)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = ["rlplug", *words]
    sys.exit(main())


def call(path: str, words: list[str]) -> int:
    """Have the command run there, and wait for its end."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        message = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(link, [message], [0, 1, 2])
        with link.makefile() as said:
            child = int(said.readline())
            for number in PASSED_ON:
                signal.signal(number, lambda got, frame: os.kill(child, got))
            code = int(said.readline())
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "serve":
        serve(*others)
    else:
        sys.exit(call(first, others))

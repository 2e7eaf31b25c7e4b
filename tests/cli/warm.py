"""Commands in forks of one process that has imported the heavy modules: the two seconds of imports are spent once.

    python warm.py serve SOCKET      the process that forks; it prints "ready"
    python warm.py SOCKET WORD...    `rlplug WORD...`, with the directory, the variables and the streams of this process
    python warm.py SOCKET --script FILE    `python -W error FILE`

`commands` starts the first and writes the others into a folder. Signals sent to the last two go to the command, whose
exit code they return. `Fork` starts a command or a piece of code without waiting for its end.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import shlex
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import IO

#: Modules that take long to import.
HEAVY = (
    "torch",
    "gymnasium",
    "rlplug_cli.app",
    "rlplug_cli.commands.run",
    "rlplug_core.loop.build",
    "rlplug_core.runs.api",
    "rlplug_core.fast.kernels",
    "rlplug_algos.policy_gradient.ppo",
    "rlplug_envs.adapter",
    "rlplug_cli.training",
    "pyarrow.parquet",
)
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def commands(python: str, folder: Path) -> Iterator[str]:
    """Write `rlplug` and `run-script`, which fork from a process of `python`, into a folder; yield its socket."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as name:  # a short path: sockets need one
        path = str(Path(name) / "door")
        for command, word in (("rlplug", ""), ("run-script", "--script ")):
            client = f"{shlex.quote(python)} -IS {__file__} {path} {word}"
            (folder / command).write_text(f'#!/bin/sh\nexec {client}"$@"\n', encoding="utf-8")
            (folder / command).chmod(0o755)
        # Both are read once; a process with threads should not fork.
        limited = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
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
    gc.freeze()  # the collector writes to all objects, and forks share only unchanged memory
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
    """Run the command in a child, and send its process id and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, *_ = socket.recv_fds(link, 1 << 20, 3)
    child = os.fork()
    if child == 0:
        link.close()
        words, place, variables, own_session = json.loads(message)
        become(words, place, variables, own_session, streams)
    for own in streams:
        os.close(own)
    link.sendall(f"{child}\n".encode())
    _, status = os.waitpid(child, 0)
    link.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(words: list[str], place: str, variables: dict[str, str], own_session: bool, streams: Sequence[int]) -> None:
    """Turn this process into the command."""
    if own_session:
        os.setsid()
    os.chdir(place)
    os.environ.clear()
    os.environ.update(variables)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - to a terminal, each line at once
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    site.addsitedir(sysconfig.get_path("purelib"))  # packages that were installed editable since the start
    try:
        if words[:1] == ["--script"]:
            run_script(words[1])
        elif words[:1] == ["-c"]:
            run_code(*words[1:])
        else:
            from rlplug_cli.__main__ import main

            sys.argv = ["rlplug", *words]
            sys.exit(main())
    except SystemExit as end:
        if isinstance(end.code, int | None):
            leave(end.code or 0)
        raise


def leave(code: int) -> None:
    """Exit like Python, but without clearing torch's modules, which takes a fifth of a second."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            return  # Python reports it
    os._exit(code)


def run_script(path: str) -> None:
    """Run a script like `python -W error FILE`."""
    warnings.resetwarnings()
    warnings.simplefilter("error")
    sys.argv = [path]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")
    sys.exit()


def run_code(code: str, *words: str) -> None:
    """Run code like `python -c CODE`."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv = ["-c", *words]
    sys.path.insert(0, "")
    exec(compile(code, "<string>", "exec"), vars(main))
    sys.exit()


def call(path: str, words: list[str], variables: dict[str, str], streams: Sequence[int], pass_on: bool = False) -> int:
    """Run a command in a fork and return its exit code; with `pass_on` it gets the signals of this process."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        message = json.dumps([words, os.getcwd(), variables, False]).encode()
        socket.send_fds(link, [message], streams)
        with link.makefile() as reply:
            child = int(reply.readline())
            for number in PASSED_ON if pass_on else ():
                signal.signal(number, lambda got, frame: os.kill(child, got))
            code = int(reply.readline())
    return code if code >= 0 else 128 - code


class Fork:
    """A fork that runs `rlplug WORD...`, `-c CODE WORD...` or `--script FILE`, with methods of `subprocess.Popen`.

    Its output must fit into a pipe.
    """

    def __init__(
        self,
        path: str,
        words: Sequence[str | Path],
        *,
        stdin: int = 0,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.own_session = start_new_session
        self.link = socket.socket(socket.AF_UNIX)
        self.link.connect(path)
        self.stdout, out = stream(stdout, 1)
        self.stderr, error = stream(out if stderr == subprocess.STDOUT else stderr, 2)
        variables = dict(os.environ if env is None else env)
        message = json.dumps([[*map(str, words)], str(cwd or Path.cwd()), variables, start_new_session])
        socket.send_fds(self.link, [message.encode()], (stdin, out, error))
        for asked, writer in ((stdout, out), (stderr, error)):
            if asked in (subprocess.PIPE, subprocess.DEVNULL):
                os.close(writer)
        self.pid = int(self.line())

    def line(self) -> bytes:
        """Return a line of the process that waits for the command."""
        reply = b""
        while part := self.link.recv(1):
            reply += part
            if part == b"\n":
                return reply
        raise ConnectionError("the process that forks is gone")

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or the negative number of the signal that killed the command."""
        if self.returncode is None:
            self.link.settimeout(timeout)
            try:
                self.returncode = int(self.line())
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a fork", timeout or 0.0) from None
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None while the command runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return the output."""
        self.wait(timeout)
        out, error = (reader.read() if reader is not None else "" for reader in (self.stdout, self.stderr))
        return out, error

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill the command, and all processes of its session if it has its own."""
        if self.own_session:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.kill()
        self.wait()
        for channel in (self.link, self.stdout, self.stderr):
            if channel is not None:
                channel.close()


def stream(wanted: int | None, own: int) -> tuple[IO[str] | None, int]:
    """Return the reading end of a pipe, if one is wanted, and the stream to which a command writes."""
    if wanted == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_WRONLY)
    if wanted != subprocess.PIPE:
        return None, own if wanted is None else wanted
    reader, writer = os.pipe()
    return open(reader, encoding="utf-8"), writer


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "serve":
        serve(*others)
    else:
        sys.exit(call(first, others, dict(os.environ), (0, 1, 2), pass_on=True))

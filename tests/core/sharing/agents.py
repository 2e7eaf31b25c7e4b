"""Files of a small shared agent of CartPole, and a server of files in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from rlplug_core.acting.policy_agent import PolicyAgent
from rlplug_core.export.bundle import write
from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import PolicyNetwork
from rlplug_core.plugins.env_source import source_of
from rlplug_core.seeds import Seeds
from rlplug_core.sharing.agent_files import MANIFEST, manifest_of

Files = dict[str, bytes]


def agent_files(**about: object) -> Files:
    """Return the files of an agent without its manifest."""
    torch.manual_seed(1)
    env = source_of("CartPole-v1").make(1)
    agent = PolicyAgent(PolicyNetwork(env.spec, Net(hidden=(8,))), Seeds(1))
    metadata = {"env": "CartPole-v1", "algorithm": "ppo", "wrap": [], "step": 10, **about}
    with TemporaryDirectory() as directory:
        folder = write(Path(directory, "agent"), agent, env, metadata, "# ppo on CartPole-v1\n")
        env.close()
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def with_manifest(files: Files) -> Files:
    """Return the files with a manifest that lists them."""
    return {**files, MANIFEST: manifest_of(files, "ppo", "CartPole-v1", "rlplug run ppo CartPole-v1")}


def change_json(files: Files, name: str, change: Callable[[dict[str, object]], object]) -> Files:
    """Return the files with a change in one JSON file."""
    value = json.loads(files[name])
    change(value)
    return {**files, name: json.dumps(value).encode()}


def put(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


class Handler(BaseHTTPRequestHandler):
    """Answers GET with the files of its server, and stores those of PUT."""

    server: FileServer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answer = self.server.files.get(self.path)
        if isinstance(answer, str):
            self.send_response(302)
            self.send_header("Location", answer)
            self.end_headers()
        elif answer is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

    def do_PUT(self) -> None:
        self.server.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class FileServer(ThreadingHTTPServer):
    """A server of files in memory; a string is the address of a redirect."""

    def __init__(self, handler: type[BaseHTTPRequestHandler] = Handler) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.files: dict[str, bytes | str] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serving(server: FileServer) -> Iterator[FileServer]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()

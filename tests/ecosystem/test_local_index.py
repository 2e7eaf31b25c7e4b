"""A plugin is installed by name from a package index, upgraded and downgraded; a yanked version is not chosen."""

from __future__ import annotations

import hashlib
import html
import io
import json
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.ecosystem.conftest import Place

NAME = "rlplug-cem"
#: A yanked version, and one for a later core.
YANKED, LATER = "0.1.9", "9.0.0"


class Index(ThreadingHTTPServer):
    """A simple repository (PEP 503 and 592) of wheels in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheels: dict[str, bytes] = {}
        self.yanked: set[str] = set()

    def page(self) -> str:
        """The page of the project: a link with a hash for each wheel, with a mark if it is yanked."""
        lines = []
        for name, data in self.wheels.items():
            mark = ' data-yanked="it forgets weights"' if name in self.yanked else ""
            link = f"/wheels/{html.escape(name)}#sha256={hashlib.sha256(data).hexdigest()}"
            lines.append(f'<a href="{link}"{mark}>{html.escape(name)}</a>')
        return f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>"


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        found = self.server.page().encode() if self.path == f"/simple/{NAME}/" else self.server.wheels.get(name)
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html" if name == "" else "application/octet-stream")
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *_: object) -> None:
        pass


def new_version(wheel: Path, version: str, core: str = "") -> tuple[str, bytes]:
    """The name and the content of a wheel with another version and another requirement of the core."""
    own = wheel.name.split("-")[1]
    out = io.BytesIO()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("/METADATA"):
                text = data.decode().replace(f"\nVersion: {own}\n", f"\nVersion: {version}\n")
                need = "Requires-Dist: rlplug-core"
                data = (re.sub(f"(?m)^{need}.*$", f"{need}{core}", text) if core else text).encode()
            if not name.endswith("/RECORD"):
                new.writestr(name.replace(f"-{own}.dist-info", f"-{version}.dist-info"), data)
        new.writestr(f"rlplug_cem-{version}.dist-info/RECORD", "")
    return wheel.name.replace(f"-{own}-", f"-{version}-"), out.getvalue()


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    (wheel,) = Path(os.environ["RLPLUG_WHEELS"]).glob("examples/rlplug_cem-*.whl")
    with Index() as server:
        for version, core in (("0.1.1", ""), ("0.1.2", ""), (YANKED, ""), (LATER, ">=99")):
            name, data = new_version(wheel, version, core)
            server.wheels[name] = data
            if version == YANKED:
                server.yanked.add(name)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def install(place: Place, index: Index, *words: str) -> str:
    """Install from the index only, and return what pip printed."""
    options = ["--index-url", f"http://127.0.0.1:{index.server_port}/simple", "--no-deps", "--no-cache-dir"]
    environment = {"PIP_NO_INDEX": "0", "PIP_EXTRA_INDEX_URL": "", "PIP_CONSTRAINT": "", "PIP_CONFIG_FILE": os.devnull}
    done = place.run("python", "-m", "pip", "install", *options, *words, **environment)
    return done.stdout + done.stderr


def row(place: Place) -> dict[str, str]:
    """The row of the plugin's algorithm in `rlplug plugins`."""
    rows = json.loads(place.rlplug("plugins", "--json").stdout)
    (found,) = [row for row in rows if (row["group"], row["id"]) == ("algorithms", "cem")]
    return dict(found)


def test_plugin_is_installed_upgraded_and_downgraded(place: Place, index: Index) -> None:
    install(place, index, f"{NAME}==0.1.1")
    assert (row(place)["version"], row(place)["status"]) == ("0.1.1", "ok")
    install(place, index, "--upgrade", f"{NAME}<9")  # 0.1.9 is newer but yanked
    assert (row(place)["version"], row(place)["status"]) == ("0.1.2", "ok")
    place.rlplug("run", "cem", "CartPole-v1", "--total-timesteps", "200", "--name", "new")
    install(place, index, f"{NAME}==0.1.1")
    assert row(place)["version"] == "0.1.1"
    place.rlplug("resume", "new", "--total-timesteps", "400")


def test_yanked_version_is_installed_only_by_its_number(place: Place, index: Index) -> None:
    output = install(place, index, f"{NAME}=={YANKED}")
    assert "it forgets weights" in output
    assert row(place)["version"] == YANKED


def test_version_for_another_core_is_incompatible(place: Place, index: Index) -> None:
    install(place, index, "--upgrade", NAME)
    assert (row(place)["version"], row(place)["status"]) == (LATER, "incompatible")
    shown = place.rlplug("plugins").stdout
    assert f"pip install --upgrade rlplug-core {NAME}" in shown
    done = place.rlplug("run", "cem", "CartPole-v1", code=3)
    assert "Traceback" not in done.stderr
    assert "rlplug-core>=99" in done.stderr.replace(" ", "")

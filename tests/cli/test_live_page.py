"""`rlplug compare --serve` serves a page on this machine that draws runs while they train."""

from __future__ import annotations

import http.client
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from rlplug_cli.compare.lines import Settings
from rlplug_cli.compare.live import live_content, live_server
from rlplug_cli.compare.page import shell
from rlplug_cli.compare.report import report
from rlplug_cli.compare.serve import HOST, Content, LiveServer
from rlplug_core.errors import UsageError
from tests.cli.histories import write_run
from tests.cli.test_browser import BROWSER, PATIENCE

SETTINGS = Settings(reps=100)


class UncachedContent(Content):
    """Makes new content for every request: a browser's virtual time is faster than ours."""

    def __call__(self) -> str:
        self.due = 0.0
        return super().__call__()


@contextmanager
def serve(make: Callable[[], str]) -> Iterator[LiveServer]:
    with LiveServer(0, lambda content, head: shell("a <title>", content, head), UncachedContent(make, 0.5)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:  # a server without a socket never waits
            server.shutdown()
            thread.join()


def request(server: LiveServer, path: str, cookie: str = "", host: str = "") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=30)
    headers = {"Cookie": cookie} if cookie else {}
    connection.request("GET", path, headers={**headers, **({"Host": host} if host else {})})
    response = connection.getresponse()
    return response.status, response.read().decode(), dict(response.headers)


def test_server_needs_a_token_and_serves_one_page() -> None:
    """Other accounts of the machine and pages of other hosts get nothing."""
    with serve(lambda: "<p>here</p>") as server:
        assert server.server_address[0] == HOST
        token = server.address.partition("?")[2]
        status, text, _ = request(server, "/")
        assert (status, "here" in text) == (401, False)
        assert request(server, "/?token=wrong")[0] == 401
        assert request(server, f"/?{token}", host="evil.example")[0] == 421
        status, _, headers = request(server, f"/?{token}")
        assert (status, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"].partition(";")[0]
        status, text, headers = request(server, "/", cookie)
        assert status == 200
        assert "<main><p>here</p></main>" in text
        assert "<title>a &lt;title&gt;</title>" in text
        assert "script-src 'nonce-" in headers["Content-Security-Policy"]
        assert request(server, "/content", cookie)[:2] == (200, "<p>here</p>")
        assert request(server, "/config.json", cookie)[0] == 404


def test_content_is_cached() -> None:
    """Ten requests make it once; after its time it is made again."""
    numbers = map(str, count(1))
    content = Content(lambda: next(numbers), every=1000)
    assert {content() for _ in range(10)} == {"1"}
    content.due = 0.0
    assert content() == "2"


def test_running_seeds_are_a_separate_line(tmp_path: Path) -> None:
    """A run without an evaluation is left out; a word that names no run is an error at the start."""
    for seed in (1, 2):
        write_run(tmp_path / f"done-{seed}", [1.0, 2.0, 3.0, 4.0], seed=seed, total_timesteps=400)
        write_run(tmp_path / f"running-{seed}", [1.0, float(seed)], seed=seed + 2, status="", total_timesteps=400)
    write_run(tmp_path / "new", [1.0], seed=9, status="", total_timesteps=400)
    (tmp_path / "new" / "journal.jsonl").write_text("")
    comparison = report([str(tmp_path)], tmp_path, ("eval/return_mean",), (), SETTINGS, running=True)
    lines = {line.label: (line.seeds, line.x.tolist()) for line in comparison.lines}
    assert lines == {"ppo": (2, [100, 200, 300, 400]), "ppo, running": (2, [100, 200])}
    assert not any("left out of curves" in remark for remark in comparison.remarks)
    assert "ppo, running" in live_content([str(tmp_path)], tmp_path, "eval/return_mean", (), SETTINGS)
    text = live_content([str(tmp_path)], tmp_path, "nothing", (), SETTINGS)
    assert "Nothing to draw yet: no run here has recorded nothing" in text
    with pytest.raises(UsageError, match="nowhere"):
        live_server(["nowhere"], tmp_path, "eval/return_mean", (), SETTINGS, port=0, every=1)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_browser_shows_a_new_run(tmp_path: Path) -> None:
    """The browser loads the page once; its script adds the run that started later."""
    write_run(tmp_path / "runs" / "a", [1.0, 2.0], status="")
    words = [str(tmp_path / "runs")]
    pages: list[str] = []

    def make() -> str:
        if pages:
            write_run(tmp_path / "runs" / f"b{len(pages)}", [5.0, 6.0], algorithm="dqn", seed=len(pages), status="")
        pages.append(live_content(words, tmp_path, "eval/return_mean", (), SETTINGS))
        return pages[-1]

    with serve(make) as server:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom")
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [str(BROWSER), *flags, profile, "--virtual-time-budget=8000", server.address]
        dom = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    assert "<svg" in dom
    assert "<td>dqn</td>" in dom, "the script did not load the new run"
    assert "<td>dqn</td>" not in pages[0]

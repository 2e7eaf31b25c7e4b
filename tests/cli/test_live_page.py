"""`rlplug compare --serve`: a page of this machine that draws runs while they train."""

from __future__ import annotations

import http.client
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


class Fresh(Content):
    """Makes the content at every request: a browser's virtual time passes faster than ours."""

    def __call__(self) -> str:
        self.due = 0.0
        return super().__call__()


@contextmanager
def serving(make: Callable[[], str]) -> Iterator[LiveServer]:
    with LiveServer(0, lambda content, head: shell("a <title>", content, head), Fresh(make, 0.5)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:  # a server without its socket never waits
            server.shutdown()
            thread.join()


def ask(server: LiveServer, path: str, cookie: str = "", host: str = "") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=30)
    headers = {"Cookie": cookie} if cookie else {}
    connection.request("GET", path, headers={**headers, **({"Host": host} if host else {})})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.headers)


def test_only_this_page_with_its_token_is_served() -> None:
    """Other accounts of the machine, and pages of other hosts that a browser opened, get nothing."""
    with serving(lambda: "<p>here</p>") as server:
        assert server.server_address[0] == HOST
        token = server.address.partition("?")[2]
        status, text, _ = ask(server, "/")
        assert (status, "here" in text) == (401, False)
        assert ask(server, "/?token=wrong")[0] == 401
        assert ask(server, f"/?{token}", host="evil.example")[0] == 421
        status, _, headers = ask(server, f"/?{token}")
        assert (status, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"].partition(";")[0]
        status, text, headers = ask(server, "/", cookie)
        assert status == 200
        assert "<main><p>here</p></main>" in text
        assert "<title>a &lt;title&gt;</title>" in text
        assert "script-src 'nonce-" in headers["Content-Security-Policy"]
        assert ask(server, "/content", cookie)[:2] == (200, "<p>here</p>")
        assert ask(server, "/config.json", cookie)[0] == 404


def test_content_is_made_seldom() -> None:
    """However many browsers ask: here once for ten requests, and again when it is due."""
    made = []
    content = Content(lambda: made.append(1) or str(len(made)), every=1000)  # type: ignore[func-returns-value]
    assert {content() for _ in range(10)} == {"1"}
    content.due = 0.0
    assert content() == "2"


def test_running_seeds_are_drawn_with_intervals_next_to_finished_ones(tmp_path: Path) -> None:
    """A run that has no evaluation yet is left out; a word that names nothing is an error at the start."""
    for seed in (1, 2):
        write_run(tmp_path / f"done-{seed}", [1.0, 2.0, 3.0, 4.0], seed=seed, total_timesteps=400)
        write_run(tmp_path / f"going-{seed}", [1.0, float(seed)], seed=seed + 2, status="", total_timesteps=400)
    write_run(tmp_path / "new", [1.0], seed=9, status="", total_timesteps=400)
    (tmp_path / "new" / "journal.jsonl").write_text("")
    found = report([str(tmp_path)], tmp_path, ("eval/return_mean",), (), SETTINGS, running=True)
    drawn = {line.label: (line.seeds, line.x.tolist()) for line in found.lines}
    assert drawn == {"ppo": (2, [100, 200, 300, 400]), "ppo, running": (2, [100, 200])}
    assert not any("left out of curves" in remark for remark in found.remarks)
    assert "ppo, running" in live_content([str(tmp_path)], tmp_path, "eval/return_mean", (), SETTINGS)
    text = live_content([str(tmp_path)], tmp_path, "nothing", (), SETTINGS)
    assert "Nothing to draw yet: no run here has recorded nothing" in text
    with pytest.raises(UsageError, match="nowhere"):
        live_server(["nowhere"], tmp_path, "eval/return_mean", (), SETTINGS, port=0, every=1)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_browser_shows_a_run_that_grows(tmp_path: Path) -> None:
    """The page is loaded once; its script brings the run that was started afterwards."""
    write_run(tmp_path / "runs" / "a", [1.0, 2.0], status="")
    words = [str(tmp_path / "runs")]
    made: list[str] = []

    def make() -> str:
        if made:
            write_run(tmp_path / "runs" / f"b{len(made)}", [5.0, 6.0], algorithm="dqn", seed=len(made), status="")
        made.append(live_content(words, tmp_path, "eval/return_mean", (), SETTINGS))
        return made[-1]

    with serving(make) as server:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom")
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [str(BROWSER), *flags, profile, "--virtual-time-budget=8000", server.address]
        dom = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    assert "<svg" in dom
    assert "<td>dqn</td>" in dom, "the script did not load the new run"
    assert "<td>dqn</td>" not in made[0]

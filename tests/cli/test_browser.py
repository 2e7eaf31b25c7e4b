"""Films play all their frames in a browser; skipped without Chromium."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.films.film import film
from tests.waiting import PATIENCE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
#: Frames, and frames per second.
FRAMES, FPS = 30, 30
#: Plays a film to its end, or decodes an animated picture, and sends its size and its number of frames.
PAGE = """<script>
const send = report => fetch('/report', {method: 'POST', body: JSON.stringify(report)});
async function play(name) {
  if (name.endsWith('.mp4')) {
    const video = document.createElement('video');
    Object.assign(video, {muted: true, src: name});
    video.onerror = () => send({error: video.error.message});
    video.onended = () => send({seconds: video.duration, width: video.videoWidth, height: video.videoHeight,
                                frames: video.getVideoPlaybackQuality().totalVideoFrames});
    document.body.append(video);
    await video.play();
  } else {
    const data = await (await fetch(name)).arrayBuffer();
    const decoder = new ImageDecoder({data, type: 'image/' + name.split('.')[1]});
    await decoder.completed;
    const first = (await decoder.decode()).image;
    const frames = decoder.tracks.selectedTrack.frameCount;
    send({width: first.displayWidth, height: first.displayHeight, frames});
  }
}
onload = () => play(location.search.slice(1)).catch(error => send({error: String(error)}));
</script><body></body>"""


class Listener(SimpleHTTPRequestHandler):
    """Serves a directory, and keeps the reports of the page."""

    reports: queue.Queue[dict[str, Any]]

    def do_POST(self) -> None:
        self.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None: ...


@contextmanager
def browser(url: str, profile: Path) -> Iterator[None]:
    """Show a page in a headless browser."""
    assert BROWSER is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--autoplay-policy=no-user-gesture-required", "--disable-background-networking",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}")  # fmt: skip
    silent = subprocess.DEVNULL
    process = subprocess.Popen([BROWSER, *flags, url], stdout=silent, stderr=silent, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def play(name: str, place: Path) -> dict[str, Any]:
    """Return the browser's report about a film."""
    (place / "page.html").write_text(PAGE)
    reports: queue.Queue[dict[str, Any]] = queue.Queue()
    handler = partial(type("Reports", (Listener,), {"reports": reports}), directory=str(place))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser(f"http://127.0.0.1:{server.server_port}/page.html?{name}", place / "profile"):
            report = reports.get(timeout=PATIENCE)
        server.shutdown()
    return report


@pytest.mark.parametrize("kind", ["mp4", "webp", "gif"])
def test_film_plays_all_frames(kind: str, tmp_path: Path) -> None:
    if kind == "mp4":
        pytest.importorskip("av")
    (tmp_path / "films").mkdir()
    writer = film(tmp_path / "films" / f"film.{kind}", FPS)
    for number in range(FRAMES):
        frame = np.zeros((160, 240, 3), np.uint8)
        frame[:, : 8 * number + 8] = 255
        writer.add(frame)
    writer.close()
    report = play(f"film.{kind}", tmp_path / "films")
    assert (report.get("width"), report.get("height")) == (240, 160), report
    if kind == "mp4":
        assert report["seconds"] == pytest.approx(FRAMES / FPS, abs=0.05)
    assert report["frames"] == FRAMES

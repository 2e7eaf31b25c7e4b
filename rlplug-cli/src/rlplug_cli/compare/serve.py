"""Serves a comparison as a page that refreshes itself while runs train, only to this machine and with a token."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HOST = "127.0.0.1"
#: Loads the content again and again; a page that cannot reach the server keeps the last one.
SCRIPT = """
const content = document.querySelector('main');
setInterval(async () => {
  try {
    const answer = await fetch('content');
    if (answer.ok) content.innerHTML = await answer.text();
    document.body.className = answer.ok ? '' : 'ended';
  } catch { document.body.className = 'ended'; }
}, %d);
"""
#: Forbids every script except our own, even if names of runs contain one.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'nonce-{nonce}'"
)


class Content:
    """The content of the page, made at most once per interval, for any number of browsers.

    Args:
        make: returns the HTML of the comparison; it may take a second.
        every: seconds between two calls; at least as long passes as the last call took.
    """

    def __init__(self, make: Callable[[], str], every: float) -> None:
        self.make = make
        self.every = every
        self.lock = threading.Lock()
        self.html = ""
        self.due = 0.0

    def __call__(self) -> str:
        with self.lock:
            start = time.monotonic()
            if start >= self.due:
                self.html = self.make()
                end = time.monotonic()
                self.due = end + max(self.every, end - start)
            return self.html


class LiveServer(ThreadingHTTPServer):
    """A server of one page on this machine.

    Args:
        port: its port; 0 takes a free one.
        page: makes the whole page from its content and the content of the `<head>` after the style.
        content: the part that is loaded again.
    """

    daemon_threads = True

    def __init__(
        self,
        port: int,
        page: Callable[[str, str], str],
        content: Content,
    ) -> None:
        super().__init__((HOST, port), Handler)
        self.page = page
        self.content = content
        self.token = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """Return the address to open; it has the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Return the name of the cookie; it has the port, because a browser keeps one set of cookies for a host."""
        return f"rlplug-live-{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers a request if it has the token, in the address or in the cookie, and asks for this host."""

    server: LiveServer
    server_version = "rlplug"
    sys_version = ""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self.headers.get("Host", "") != f"{HOST}:{self.server.server_port}":
            self._answer(421, "this server answers only to its own address\n")
        elif self._is_token(parse_qs(url.query).get("token", [""])[0]):
            cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
            self._answer(303, "", ("Location", "/"), ("Set-Cookie", cookie))
        elif not self._has_cookie():
            self._answer(401, "open the address that 'rlplug compare --serve' printed\n")
        elif url.path == "/content":
            self._answer(200, self.server.content(), kind="html")
        elif url.path == "/":
            nonce = secrets.token_urlsafe(12)
            script = SCRIPT % (int(1000 * self.server.content.every))
            page = self.server.page(
                self.server.content(), f'<script nonce="{nonce}" type="module">{script}</script>'
            )
            policy = ("Content-Security-Policy", POLICY.format(nonce=nonce))
            self._answer(200, page, policy, kind="html")
        else:
            self._answer(404, "there is only one page\n")

    def _is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.server.token.encode())

    def _has_cookie(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _answer(
        self,
        status: int,
        text: str,
        *headers: tuple[str, str],
        kind: str = "plain",
    ) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"text/{kind}; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing; the terminal has one line, the address."""

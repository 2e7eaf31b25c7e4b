"""MLflow's web application with a token check: `rlplug ui` serves it through MLflow's entry point for applications.

MLflow's server has no accounts, and can make experiments with artifacts in any directory: a client of its port can read
every file of its user. Other accounts of the machine can reach 127.0.0.1 too, so each request must bring the token
that `rlplug ui` prints: in the address (`?token=…`, which sets a cookie), as that cookie, or as `Authorization: Bearer
…`, as MLflow's clients send it if `MLFLOW_TRACKING_TOKEN` is set.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from rlplug_cli.mlflow import ui_redirect

#: The environment variable with the token of the server's process; other accounts cannot read it.
TOKEN = "RLPLUG_UI_TOKEN"
#: A cookie's name holds the port, since browsers keep one set of cookies for all ports of a host.
COOKIE = "rlplug-ui-{port}"

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]


class Guarded:
    """An ASGI application that refuses requests without the token."""

    def __init__(self, application: Application, token: str) -> None:
        if not token:
            raise ValueError(f"{TOKEN} is not set; start the server with 'rlplug ui'")
        self.application = application
        self.token = token.encode()

    async def __call__(
        self,
        scope: Message,
        receive: Receive,
        send: Send,
    ) -> None:
        is_http = scope["type"] == "http"
        experiment = ui_redirect.experiment_id(str(scope.get("path", ""))) if is_http else ""
        tokens = parse_qs(scope.get("query_string", b"")).get(b"token", [b""])
        if experiment and self._is_authorized(scope):
            await _answer(
                send,
                200,
                [(b"content-type", b"text/html; charset=utf-8")],
                ui_redirect.page(experiment),
            )
        elif scope["type"] == "lifespan" or self._is_authorized(scope):
            await self.application(scope, receive, send)
        elif is_http and self._is_token(tokens[0]):
            cookie = f"{_cookie(scope)}={self.token.decode()}; Path=/; HttpOnly; SameSite=Strict"
            # The token leaves the address, and with it the history of the browser.
            location = f"{ui_redirect.PATH}{experiment}" if experiment else "/"
            await _answer(
                send, 303, [(b"location", location.encode()), (b"set-cookie", cookie.encode())], b""
            )
        elif is_http:
            await _answer(
                send, 401, [], b"open the address that 'rlplug ui' printed, with its token\n"
            )
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _is_authorized(self, scope: Message) -> bool:
        headers = {name.lower(): value for name, value in scope["headers"]}
        kind, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() == b"bearer" and self._is_token(bearer):
            return True
        try:
            cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
        except CookieError:
            return False
        cookie = cookies.get(_cookie(scope))
        return cookie is not None and self._is_token(cookie.value.encode())

    def _is_token(self, token: bytes) -> bool:
        return hmac.compare_digest(token, self.token)


def _cookie(scope: Message) -> str:
    return COOKIE.format(port=(scope.get("server") or ("", 0))[1])


async def _answer(
    send: Send,
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    all_headers = {
        b"content-type": b"text/plain; charset=utf-8",
        b"cache-control": b"no-store",
        **dict(headers),
    }
    await send(
        {"type": "http.response.start", "status": status, "headers": list(all_headers.items())}
    )
    await send({"type": "http.response.body", "body": body})


def app() -> Application:
    """Return MLflow's application with a check of the token in the environment."""
    from mlflow.server.fastapi_app import app as mlflow_app

    return Guarded(mlflow_app, os.environ.pop(TOKEN, ""))

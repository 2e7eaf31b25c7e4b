"""Follows redirects of downloads only to addresses that a check accepts."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPMessage
from typing import IO
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener


class CheckedRedirects(HTTPRedirectHandler):
    """Calls `check` with each address that a server redirects to; it raises an error to refuse one."""

    def __init__(self, check: Callable[[str], None]) -> None:
        self.check = check

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        self.check(newurl)
        return super().redirect_request(req, fp, code, msg=msg, headers=headers, newurl=newurl)


def opener(check: Callable[[str], None]) -> OpenerDirector:
    """Return an opener of addresses that follows checked redirects."""
    return build_opener(CheckedRedirects(check))

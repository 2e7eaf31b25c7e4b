"""Follows redirects of downloads only to addresses that are as safe as the first one."""

from __future__ import annotations

from http.client import HTTPMessage
from typing import IO
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from rlplug_core.config.download import check_encrypted


class SafeRedirects(HTTPRedirectHandler):
    """Refuses redirects from `address`, a `noun`, that are not encrypted."""

    def __init__(self, address: str, noun: str) -> None:
        self.address = address
        self.noun = noun

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        check_encrypted(newurl, self.noun, self.address)
        return super().redirect_request(req, fp, code, msg=msg, headers=headers, newurl=newurl)


def opener(address: str, noun: str) -> OpenerDirector:
    """Return an opener for an address."""
    return build_opener(SafeRedirects(address, noun))

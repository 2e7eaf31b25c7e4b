"""Reads and writes URLs: encrypted unless they are on this machine, with limits on bytes and time."""

from __future__ import annotations

import time
from functools import partial
from ipaddress import ip_address
from typing import IO
from urllib.parse import urlsplit

from rlplug_core.errors import UsageError, plain

#: The seconds that a server may be silent, the bytes per second that it must then send, and the bytes of one read.
SILENCE = 10
SLOWEST = 2**14
BLOCK = 2**16


def download(address: str, most: int, noun: str) -> bytes:
    """Return the content of an address.

    Args:
        most: the most bytes that it may have; no more are read.
        noun: its kind, for messages.

    Raises:
        UsageError: it is not encrypted, cannot be reached, is too large, or comes too slowly.
    """
    check = partial(check_encrypted, noun, address)
    check_encrypted(noun, "", address)
    deadline = time.monotonic() + SILENCE + most / SLOWEST
    try:
        from rlplug_core.config.redirects import opener  # 30 ms, which only a download needs

        with opener(check).open(address, timeout=SILENCE) as answer:
            return _read(answer, most, deadline, f"the {noun} {plain(address)}")
    except (OSError, ValueError) as error:  # urllib's URLError is an OSError
        raise UsageError(
            f"the {noun} {plain(address)} cannot be reached ({plain(str(error))})"
        ) from error


def upload(address: str, content: bytes, noun: str) -> None:
    """Write an address with the method PUT, as WebDAV and stores of objects accept it.

    Raises:
        UsageError: it is not encrypted, or its server does not accept the content.
    """
    from urllib.request import Request

    from rlplug_core.config.redirects import opener

    check = partial(check_encrypted, noun, address)
    check_encrypted(noun, "", address)
    request = Request(address, content, method="PUT")  # an address of http or https, see above
    try:
        opener(check).open(request, timeout=SILENCE + len(content) / SLOWEST).close()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the {noun} {plain(address)} cannot be written ({plain(str(error))}); its server must accept PUT"
        ) from error


def check_encrypted(noun: str, before: str, address: str) -> None:
    """Refuse an address with content that others could change in transit: accept https, and http only on this machine.

    Args:
        before: the address that redirected to it, or ""; only one on this machine may lead to this machine by http.

    Raises:
        UsageError: it is refused.
    """
    parts = urlsplit(address)
    local = _is_loopback(parts.hostname or "") and (
        not before or _is_loopback(urlsplit(before).hostname or "")
    )
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        redirect = f"{plain(before)} leads to " if before else ""
        raise UsageError(
            f"{redirect}{plain(address)}: a {noun} is read over https only; write https://"
        )


def _read(
    answer: IO[bytes],
    most: int,
    deadline: float,
    subject: str,
) -> bytes:
    """Return all bytes of an answer.

    Raises:
        UsageError: there are more than `most`, or they come too slowly.
    """
    parts: list[bytes] = []
    remaining = most + 1
    while remaining > 0 and (part := answer.read(min(BLOCK, remaining))):
        parts.append(part)
        remaining -= len(part)
        if time.monotonic() > deadline:
            raise UsageError(f"{subject} arrives too slowly; try again later")
    if remaining <= 0:
        raise UsageError(f"{subject} has more than {most:,} bytes")
    return b"".join(parts)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

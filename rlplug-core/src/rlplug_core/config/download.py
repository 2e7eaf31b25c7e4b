"""Reads and writes URLs: encrypted unless they are on this machine, with limits on size and time."""

from __future__ import annotations

import time
from functools import partial
from ipaddress import ip_address
from typing import IO
from urllib.parse import urlsplit

from rlplug_core.errors import UsageError, plain

#: Seconds without an answer after which a server counts as dead, and the lowest speed in bytes per second.
SILENCE = 10
SLOWEST = 2**14
#: Bytes of one read.
BLOCK = 2**16


def download(address: str, max_bytes: int, noun: str) -> bytes:
    """Return the content of an address.

    Args:
        max_bytes: the limit of its size; no more bytes are read.
        noun: its kind, for messages.

    Raises:
        UsageError: it is not encrypted, cannot be reached, is too large, or comes too slowly.
    """
    check = partial(check_encrypted, noun, address)
    check_encrypted(noun, "", address)
    deadline = time.monotonic() + SILENCE + max_bytes / SLOWEST
    try:
        from rlplug_core.config.redirects import opener  # 30 ms, which only a download needs

        with opener(check).open(address, timeout=SILENCE) as response:
            return _read(response, max_bytes, deadline, f"the {noun} {plain(address)}")
    except (OSError, ValueError) as error:  # urllib's URLError is an OSError
        raise UsageError(
            f"the {noun} {plain(address)} cannot be reached ({plain(str(error))})"
        ) from error


def upload(address: str, content: bytes, noun: str) -> None:
    """Write to an address with the method PUT, which WebDAV and object stores accept.

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
        before: the address that redirected to it, or "". A server elsewhere must not redirect to http on this machine.

    Raises:
        UsageError: it is refused.
    """
    url = urlsplit(address)
    local = _is_loopback(url.hostname or "") and (
        not before or _is_loopback(urlsplit(before).hostname or "")
    )
    if url.scheme != "https" and not (url.scheme == "http" and local):
        redirect = f"{plain(before)} leads to " if before else ""
        raise UsageError(
            f"{redirect}{plain(address)}: a {noun} is read over https only; write https://"
        )


def _read(
    response: IO[bytes],
    max_bytes: int,
    deadline: float,
    subject: str,
) -> bytes:
    """Return all bytes of a response.

    Raises:
        UsageError: there are more than `max_bytes`, or they come too slowly.
    """
    blocks: list[bytes] = []
    remaining = max_bytes + 1
    while remaining > 0 and (block := response.read(min(BLOCK, remaining))):
        blocks.append(block)
        remaining -= len(block)
        if time.monotonic() > deadline:
            raise UsageError(f"{subject} arrives too slowly; try again later")
    if remaining <= 0:
        raise UsageError(f"{subject} has more than {max_bytes:,} bytes")
    return b"".join(blocks)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

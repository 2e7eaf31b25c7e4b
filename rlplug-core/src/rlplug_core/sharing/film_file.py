"""The film of a shared agent: a small animated WebP that contains only pictures."""

from __future__ import annotations

import struct

from rlplug_core.errors import RlplugError, plain

FILM = "film.webp"
#: The line of a card that shows it.
FILM_MARKDOWN = f"![An episode]({FILM})"
#: The maximum numbers of bytes and of frames, and the maximum width and height in pixels.
FILM_BYTES = 2**22
MOST_FRAMES = 2000
MOST_PIXELS = 2048
#: The chunks of a file, and those inside a frame. Others can hold text, such as EXIF and XMP.
CHUNKS = {b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"}
INNER = {b"VP8 ", b"VP8L", b"ALPH"}


def check_film(data: bytes) -> None:
    """Raise RlplugError unless this is a WebP file with only chunks of pictures; nothing is decoded."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) > FILM_BYTES:
        raise RlplugError(f"{FILM} is not a WebP film; do not use this agent")
    if struct.unpack("<I", data[4:8])[0] + 8 != len(data):
        raise RlplugError(f"{FILM} has other bytes after its pictures; do not use this agent")
    chunks = _chunks(data, 12, CHUNKS)
    frames = 0
    for name, body in chunks:
        if name == b"VP8X":
            _check_size(body[4:10])
        elif name == b"ANMF":
            frames += 1
            _check_size(body[6:12])
            _chunks(body, 16, INNER)
    if frames > MOST_FRAMES:
        raise RlplugError(f"{FILM} has {frames:,} frames, and at most {MOST_FRAMES:,} are allowed")


def _chunks(
    data: bytes,
    start: int,
    known: set[bytes],
) -> list[tuple[bytes, bytes]]:
    """Return the chunks from `start` to the end of the data, each with its name."""
    chunks = []
    while start < len(data):
        name = data[start : start + 4]
        size = int.from_bytes(data[start + 4 : start + 8], "little")
        body = data[start + 8 : start + 8 + size]
        if name not in known or len(body) != size or start + 8 > len(data):
            chunk_name = plain(repr(name)[2:-1])
            raise RlplugError(
                f"{FILM} has the part '{chunk_name}', which is damaged or not a picture; do not use this agent"
            )
        chunks.append((name, body))
        start += 8 + size + size % 2
    return chunks


def _check_size(body: bytes) -> None:
    """Raise RlplugError if a picture is too large; width minus one and height minus one have three bytes each."""
    width, height = (int.from_bytes(body[at : at + 3], "little") + 1 for at in (0, 3))
    if max(width, height) > MOST_PIXELS:
        raise RlplugError(f"{FILM} has pictures of {width:,} x {height:,} pixels; do not use it")

"""Copies a shared agent to this machine and checks every file before it can be loaded."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from rlplug_core.errors import BadFile, RlplugError
from rlplug_core.export.bundle import new_directory
from rlplug_core.sharing.agent_files import (
    MANIFEST,
    MANIFEST_BYTES,
    check_content,
    check_folder,
    read_manifest,
)
from rlplug_core.sharing.places import Place, place_of
from rlplug_core.sharing.words import is_source, parse


def pull(word: str, out: Path | None = None, refresh: bool = False) -> Path:
    """Return a folder with the files of a shared agent.

    Args:
        word: a source such as `hub:owner/name`, or the path of a folder that `push` wrote.
        out: a new folder for the files; default: the cache (`$XDG_CACHE_HOME/rlplug/agents`).
        refresh: read a source again, although its files are in the cache.

    Raises:
        RlplugError: it cannot be read, or a file is damaged, too large or not allowed; then nothing is written.
    """
    pin = parse(word).pin if is_source(word) else ""
    if out is not None:
        with new_directory(out) as folder:
            folder.mkdir()
            _copy(place_of(word), folder, pin)
        return out
    cache = cache_folder(word)
    if not refresh and (cache / MANIFEST).is_file():
        return cache
    cache.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(
        prefix=".pull-", dir=cache.parent, ignore_cleanup_errors=True
    ) as hidden:
        folder = Path(hidden, "agent")
        folder.mkdir()
        _copy(place_of(word), folder, pin)
        if cache.is_dir():
            cache.rename(Path(hidden, "before"))
        try:
            folder.rename(cache)
        except OSError:  # another process has written the same agent meanwhile
            if not (cache / MANIFEST).is_file():
                raise
    return cache


def cache_folder(word: str) -> Path:
    """Return the folder in the cache for a source; its name has the source's letters and digits and a hash."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", word.partition("#")[0])[-60:].strip("-.")
    digest = hashlib.sha256(word.encode()).hexdigest()[:16]
    return Path(home, "rlplug", "agents", f"{readable}-{digest}")


def _copy(place: Place, folder: Path, pin: str) -> None:
    """Write the files of an agent into an empty folder and check them; `pin` is as in `Source`."""
    data = place.read(MANIFEST, MANIFEST_BYTES)
    if pin and hashlib.sha256(data).hexdigest() != pin:
        raise RlplugError(
            f"the {MANIFEST} of {place.name} does not have #sha256={pin}; ask the person who gave you the address"
        )
    manifest = read_manifest(data, place.name)
    (folder / MANIFEST).write_bytes(data)
    for name, listed in manifest.files.items():
        file = place.read(name, listed.bytes)
        check_content(name, file, listed, place.name)
        (folder / name).write_bytes(file)
    try:
        check_folder(folder)
    except BadFile as error:
        raise RlplugError(f"{place.name}: {error.path.name}: {error.reason}") from error
    except RlplugError as error:
        message = str(error).replace(str(folder), place.name)
        raise RlplugError(
            message if place.name in message else f"{place.name}: {message}"
        ) from error

"""Decides whose code a run would run: nothing that came with a run is executed unless this account vouches for it.

A run's algorithm, environment, wrappers and network may be Python files, kept in its `sources/`, or modules, in folders
that it names. Installed plugins are the user's own choice. For the rest, `config.json` has a seal: an HMAC under a key
that only this account can read (`$XDG_STATE_HOME/rlplug/key`, else `~/.local/state/rlplug/key`). Who cannot read the
key cannot write a run that looks like this account's, and the hashes of the copies are under the seal.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from rlplug_core.config.files import content, regular
from rlplug_core.config.import_string import is_target
from rlplug_core.errors import BadFile, Untrusted, plain
from rlplug_core.plugins.wrapper_spec import split
from rlplug_core.runs.sources import copy_of, digest, roles

SEAL = "seal"
#: How an option looks that may name something to import.
_TARGET = re.compile(r".+:[^\W\d]\w*", re.DOTALL)


def sealed(about: Mapping[str, object]) -> dict[str, object]:
    """Data to be written, with their seal; an empty one where this account has no place for a key."""
    return {**about, SEAL: _seal(about)}


def genuine(about: Mapping[str, object]) -> bool:
    """Return whether this account has written this, and nobody has changed it since."""
    seal = about.get(SEAL)
    wanted = _seal(about)
    return (
        bool(wanted)
        and isinstance(seal, str)
        and hmac.compare_digest(seal.encode(), wanted.encode())
    )


def require(run: Path, config: Mapping[str, object]) -> None:
    """Refuse to run what nobody here vouches for.

    Raises:
        Untrusted: the run has code of its own that this account did not write or that has changed; it says whose.
    """
    if found := doubts(run, config):
        raise Untrusted(
            f"{plain(run.name)} would execute {' and '.join(found)}; read it, then say --trust (trust=True in Python)"
        )


def require_plugins(place: Path, wrappers: Iterable[str]) -> None:
    """Refuse wrappers that are no installed plugins, for what has no seal.

    Raises:
        Untrusted: there is one.
    """
    for name, _ in map(split, wrappers):
        if is_target(name):
            raise Untrusted(
                f"{plain(str(place))} would execute the wrapper {plain(name)}, which is no installed plugin; read it, "
                "then load it with trust=True"
            )


def doubts(run: Path, config: Mapping[str, Any]) -> list[str]:
    """The code that a run would execute and nobody here vouches for, each part with the reason."""
    kept = config.get("sources", {})
    options = config["options"]
    importing = [
        name
        for name, value in options.items()
        if isinstance(value, str) and _TARGET.fullmatch(value)
    ]
    named = roles(config, {*kept, *importing})
    written_here = genuine(config)
    found = []
    for role, name in named.items():
        if not (is_target(name) or role in kept):
            continue  # an installed plugin
        copy = copy_of(run, config, role)
        changed = copy is not None and digest(copy) not in ("", config["sources"][role]["sha256"])
        if changed or not written_here:
            why = (
                "has changed since the run began"
                if changed and written_here
                else "this account did not write here"
            )
            found.append(f"{plain(str(copy or name))} ({plain(role)}), which {why}")
    folders = () if written_here else config.get("modules", {}).values()
    return [
        *found,
        *(
            f"modules in {plain(str(folder))}, which this account did not write here"
            for folder in folders
        ),
    ]


def _seal(about: Mapping[str, object]) -> str:
    rest = {name: value for name, value in about.items() if name != SEAL}
    # As it will be read: a tuple is a list by then.
    text = json.dumps(json.loads(json.dumps(rest)), sort_keys=True)
    key = _key(_place())
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() if key else ""


def _place() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "rlplug" / "key"


@cache
def _key(path: Path) -> bytes:
    """The account's key, made on first use; empty where it can neither be read nor made."""
    try:
        if not regular(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".key-{os.getpid()}-{secrets.token_hex(4)}")
            with os.fdopen(
                os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process was first, and it is its key
                os.link(temporary, path)
            temporary.unlink()
        return content(path, limit=32)
    except (
        OSError,
        RuntimeError,
        BadFile,
    ):  # no home, a full or read-only disk: its runs are nobody's
        return b""

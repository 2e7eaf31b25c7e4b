"""Decides whether a run may execute code: only code that is installed, or that this account wrote.

A run's algorithm, environment, wrappers and network may be Python files, with copies in its `sources/`, or modules in
folders that the run names. The user chose the installed plugins. All other code needs the seal of `config.json`: an
HMAC with a key that only this account can read (`$XDG_STATE_HOME/rlplug/key`, or `~/.local/state/rlplug/key`). An
account that cannot read the key cannot write a run with a valid seal. The seal covers the hashes of the copies.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from rlplug_core.config.files import content, is_regular
from rlplug_core.config.import_string import is_target
from rlplug_core.config.module_search import is_local
from rlplug_core.errors import BadFile, Untrusted, plain, warn
from rlplug_core.plugins.presets import provider_preset
from rlplug_core.plugins.single_wrappers import SHORT
from rlplug_core.plugins.spec import split
from rlplug_core.runs.schemas import RunConfig
from rlplug_core.runs.sources import copy_of, digest, roles
from rlplug_core.sharing.words import is_source

SEAL = "seal"
#: The wrapper of Gymnasium that writes files, to any folder.
WRITER = f"{SHORT}RecordVideo"
#: The pattern of an option that may name something to import.
_TARGET = re.compile(r".+:[^\W\d]\w*", re.DOTALL)


def add_seal(data: Mapping[str, object]) -> dict[str, object]:
    """Return the data and their seal, which is empty if this account has no key."""
    return {**data, SEAL: _seal(data)}


def genuine(data: Mapping[str, object]) -> bool:
    """Return whether this account wrote these data and they are unchanged."""
    seal = data.get(SEAL)
    expected = _seal(data)
    return (
        bool(expected)
        and isinstance(seal, str)
        and hmac.compare_digest(seal.encode(), expected.encode())
    )


def require_seal(run: Path, config: RunConfig) -> None:
    """Refuse to execute a run's code without this account's seal.

    Raises:
        Untrusted: the run has code that this account did not write or that has changed; the message names it.
    """
    if code := code_without_seal(run, config):
        raise Untrusted(
            f"{plain(run.name)} would execute {' and '.join(code)}; read it, then add --trust (trust=True in Python)"
        )


def require_plugins(
    place: Path,
    wrappers: Iterable[str],
    env: str = "",
) -> None:
    """Refuse an environment and wrappers that are not installed plugins, for a record without a seal.

    Raises:
        Untrusted: one of them is not an installed plugin, or writes files to a folder that the record names.
    """
    named = [("environment", env), *(("wrapper", split(words)[0]) for words in wrappers)]
    for noun, name in named:
        if name == WRITER:
            raise Untrusted(
                f"{plain(str(place))} would write videos with {name}; to allow this, add --trust (trust=True in Python)"
            )
        if names_code(name) and not (noun == "wrapper" and name.startswith(SHORT)):
            raise Untrusted(
                f"{plain(str(place))} would execute the {noun} {plain(name)}, which is not an installed plugin; "
                "read it, then add --trust (trust=True in Python)"
            )


def require_known_start(run: Path, config: RunConfig) -> None:
    """Refuse to fetch the first weights of a run from a place that another account chose.

    Raises:
        Untrusted: the run does not have this account's seal and started from a source of shared agents.
    """
    start = config["options"].get("init")
    if is_source(start) and not str(start).startswith("zoo:") and not genuine(config):
        raise Untrusted(
            f"{plain(run.name)} would fetch its first weights from {plain(str(start))}, which this account did not "
            "choose; to allow this, add --trust (trust=True in Python)"
        )


def unknown_wrappers(wrappers: Iterable[str], env: str) -> list[str]:
    """Return the wrappers that no installed provider sets for this environment.

    `rlplug run` uses the wrappers of providers without a question, so a record that names one of them adds no code. A
    module in the working directory with the same name would be other code.
    """
    preset_wrappers = provider_preset(env).get("wrap", ()) if env else ()
    return [
        wrapper
        for wrapper in wrappers
        if wrapper not in preset_wrappers or is_local(wrapper.partition(":")[0])
    ]


def names_code(name: str) -> bool:
    """Return whether an import of this name may execute code that is not installed.

    A provider of environments may import the part after its slash (`pettingzoo/module.name`), which must not be a
    module of the working directory.
    """
    return is_target(name) or any(map(is_local, name.split("/")[1:]))


def code_without_seal(run: Path, config: RunConfig) -> list[str]:
    """Return the code that a run would execute without this account's seal, each file or module with the reason."""
    written_here = genuine(config)
    sentences = _untrusted_sources(run, config, written_here)
    if written_here:
        return sentences
    folders = [f"modules in {plain(str(folder))}" for folder in config.get("modules", {}).values()]
    cluster = str(config["options"].get("on", ""))
    # Ray unpickles the results of a cluster, so a cluster can execute any code here.
    clusters = [f"code of the Ray cluster {plain(cluster)}"] if "://" in cluster else []
    return sentences + [
        f"{code}, which this account did not write here" for code in folders + clusters
    ]


def _untrusted_sources(
    run: Path,
    config: RunConfig,
    written_here: bool,
) -> list[str]:
    """Return a sentence for each file or module that has changed, or that this account did not write here."""
    sources = config.get("sources", {})
    options = config["options"]
    targets = [
        name
        for name, value in options.items()
        if isinstance(value, str) and _TARGET.fullmatch(split(value)[0])
    ]
    sentences = []
    for role, name in roles(config, {*sources, *targets, "eval_env"}).items():
        if not (names_code(name) or role in sources):
            continue  # an installed plugin
        copy = copy_of(run, config, role)
        changed = copy is not None and digest(copy) not in ("", config["sources"][role]["sha256"])
        if not written_here:
            reason = "this account did not write here"
        elif changed:
            reason = "has changed since the run started"
        else:
            continue
        sentences.append(f"{plain(str(copy or name))} ({plain(role)}), which {reason}")
    return sentences


def _seal(data: Mapping[str, object]) -> str:
    sealed = {name: value for name, value in data.items() if name != SEAL}
    # The data in the form that the file gives back: a tuple becomes a list.
    text = json.dumps(json.loads(json.dumps(sealed)), sort_keys=True)
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    key = _key(Path(home) / "rlplug" / "key")
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() if key else ""


@cache
def _key(path: Path) -> bytes:
    """Return the account's key, made on first use; empty if it cannot be read or made, or if it is not private."""
    try:
        if not is_regular(path):
            _make_key(path)
        if reason := _exposure(path):
            warn(
                f"{path} {reason}, so runs are written without a seal and their code asks for --trust; "
                f"delete {path.parent} to get a new key"
            )
            return b""
        return content(path, limit=32)
    # No home, or a full or read-only disk: runs have no seal then.
    except (OSError, RuntimeError, BadFile):
        return b""


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".key-{os.getpid()}-{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(32))
    with suppress(FileExistsError):  # another process was first: its key counts
        os.link(temporary, path)
    temporary.unlink()


def _exposure(path: Path) -> str:
    """Return how another account could have read or written this key, or "". The rule is that of ssh for its keys."""
    if not hasattr(os, "geteuid"):  # not a POSIX system: its home directories are private
        return ""
    key = path.lstat()
    folder = path.parent.stat()
    if {key.st_uid, folder.st_uid} != {os.geteuid()}:
        return "belongs to another account"
    if stat.S_IMODE(key.st_mode) & 0o077 or stat.S_IMODE(folder.st_mode) & 0o022:
        return "can be read or changed by other accounts"
    return ""

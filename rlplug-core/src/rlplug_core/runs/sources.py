"""The copies of source files that a run keeps: what `./file.py:Name` named stays as it was, whatever becomes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlplug_core.plugins import source_file
from rlplug_core.plugins.wrapping import joined, split
from rlplug_core.runs.files import writing

FOLDER = "sources"


def keep(run: Path, config: Mapping[str, Any], targets: Iterable[str] = ()) -> dict[str, Any]:
    """Copy the files that a configuration names into the run directory.

    Args:
        targets: the options of the algorithm that name something to import, such as `net.factory`.

    Returns:
        The configuration with `sources`: for each of `algorithm`, `env`, `wrap.0`, … and the targets that is a file,
        its path, its copy's and its SHA-256.
    """
    kept: dict[str, dict[str, str]] = {}
    for role, name in _roles(config, targets).items():
        if path := source_file(name):
            digest = _digest(path)
            copy = Path(FOLDER, f"{path.stem}-{digest[:8]}.py")  # two files of one name differ in what they hold
            content = path.read_bytes()
            with writing(run / copy):
                (run / FOLDER).mkdir(exist_ok=True)
                (run / copy).write_bytes(content)
            kept[role] = {"file": str(path), "copy": str(copy), "sha256": digest}
    return {**config, "sources": kept}


def names(run: Path, config: Mapping[str, Any], say: Callable[[str], None]) -> tuple[str, str, Mapping[str, Any]]:
    """The algorithm, the environment and the options of a run, by its own copies; what has changed is said."""
    kept, options = config.get("sources", {}), config["options"]
    own = [role for role in kept if role in options]
    found = {role: _name(run, name, kept.get(role), say) for role, name in _roles(config, own).items()}
    wrap = [joined(found[f"wrap.{number}"], split(words)[1]) for number, words in enumerate(_wrap(options))]
    return found["algorithm"], found["env"], {**options, **{role: found[role] for role in own}, "wrap": wrap}


def identities(
    algorithm: str, env: str, options: Mapping[str, Any], targets: Iterable[str] = ()
) -> tuple[str, str, Mapping[str, Any]]:
    """The same for a comparison of runs: instead of a file, the hash of what it holds, wherever it is."""
    wrap = [joined(_identity(name), values) for name, values in map(split, _wrap(options))]
    named = {role: _identity(options[role]) for role in targets}
    return _identity(algorithm), _identity(env), {**options, **named, "wrap": wrap}


def _roles(config: Mapping[str, Any], targets: Iterable[str]) -> dict[str, str]:
    """Return the parts of a run's configuration that may name a file."""
    wrappers = {f"wrap.{number}": split(words)[0] for number, words in enumerate(_wrap(config["options"]))}
    named = {role: config["options"][role] for role in targets}
    return {"algorithm": config["algorithm"], "env": config["env"], **wrappers, **named}


def _wrap(options: Mapping[str, Any]) -> Sequence[str]:
    wrap: Sequence[str] = options.get("wrap", ())
    return wrap


def _name(run: Path, name: str, source: Mapping[str, str] | None, say: Callable[[str], None]) -> str:
    if source is None:
        return name
    copy, sha256 = run / source["copy"], source["sha256"]
    if _digest(copy) not in ("", sha256):
        say(f"{copy} has changed since the run began; this will not give the same bits")
    elif _digest(Path(source["file"])) not in ("", sha256):
        say(f"{source['file']} has changed since the run began; this uses the run's copy, {copy}")
    return f"{copy}:{name.rpartition(':')[2]}"


def _identity(name: str) -> str:
    path = source_file(name)
    return name if path is None else f"{_digest(path)}:{name.rpartition(':')[2]}"


def _digest(path: Path) -> str:
    """The SHA-256 of a file, empty where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

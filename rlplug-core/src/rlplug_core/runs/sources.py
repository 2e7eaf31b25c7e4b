"""Copies of source files in a run, so that a run keeps the code of `./file.py:Name` if the file changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from rlplug_core.config.files import content, hold_directory, is_directory, replace
from rlplug_core.config.import_string import is_target, source_file
from rlplug_core.config.module_search import folder_of, search_folder
from rlplug_core.errors import BadFile, plain, warn
from rlplug_core.plugins.spec import join_words, split
from rlplug_core.runs.files import writing
from rlplug_core.runs.schemas import RunConfig

FOLDER = "sources"
#: The options that list plugins with their options; each plugin may be in a file.
LISTS = ("wrap", "eval_wrap", "controller", "log")


def copy_sources(
    run: Path,
    config: Mapping[str, object],
    targets: Iterable[str] = (),
) -> dict[str, object]:
    """Copy the files that a configuration names into the run directory.

    Args:
        targets: the options of the algorithm that name something to import, such as `net.factory`.

    Returns:
        The configuration with two more entries by role: `algorithm`, `env`, `wrap.0`, `controller.0`, …, or a target.
        `sources` has the path, the copy and the SHA-256 of each file; `modules` the folder of each module that is not
        installed.
    """
    copies: dict[str, dict[str, str]] = {}
    names_by_role = roles(cast("RunConfig", config), targets)
    for role, name in names_by_role.items():
        if path := source_file(name):
            sha256 = digest(path)
            source = content(path)
            # Files with the same name may have different contents.
            copy = Path(FOLDER, f"{path.stem}-{sha256[:8]}.py")
            with writing(run / copy), hold_directory(run / FOLDER) as folder:
                replace(folder / copy.name, source)
            copies[role] = {"file": str(path), "copy": str(copy), "sha256": sha256}
    folders = {
        role: folder_of(name)
        for role, name in names_by_role.items()
        if is_target(name) and role not in copies
    }
    modules = {role: str(folder) for role, folder in folders.items() if folder}
    return {**config, "sources": copies, **({"modules": modules} if modules else {})}


def names(run: Path, config: RunConfig) -> tuple[str, str, Mapping[str, Any]]:
    """Return the algorithm, the environment and the options of a run, with its copies in place of files.

    It warns about files that have changed.
    """
    for folder in config.get("modules", {}).values():
        search_folder(Path(folder))
    targets = [role for role in config.get("sources", {}) if role in config["options"]]
    return _with_names(config, targets, partial(_name_of_copy, run, config))


def identities(
    algorithm: str,
    env: str,
    options: Mapping[str, Any],
    targets: Sequence[str],
) -> tuple[str, str, Mapping[str, Any]]:
    """Return the same as `names` for a comparison of runs, with the hash of a file's content instead of its path."""
    config = cast("RunConfig", {"algorithm": algorithm, "env": env, "options": options})
    return _with_names(config, targets, lambda _, name: identity(name))


def _with_names(
    config: RunConfig,
    targets: Sequence[str],
    new_name: Callable[[str, str], str],
) -> tuple[str, str, Mapping[str, Any]]:
    """Return the algorithm, the environment and the options; `new_name` returns the new name for a role and a name."""
    options = config["options"]
    resolved = {role: new_name(role, name) for role, name in roles(config, targets).items()}
    changed: dict[str, object] = {
        role: join_words(resolved[role], split(options[role])[1])
        for role in targets
        if role in resolved
    }
    for name, listed in _lists(options).items():
        changed[name] = [
            join_words(resolved[f"{name}.{number}"], split(words)[1])
            for number, words in enumerate(listed)
        ]
    return resolved["algorithm"], resolved["env"], {**options, **changed}


def identity(name: str) -> str:
    """Return a name for comparisons: with the hash of a file's content instead of its path."""
    path = source_file(name)
    return name if path is None else f"{_hash_of(path)}:{name.rpartition(':')[2]}"


def roles(config: RunConfig, targets: Iterable[str]) -> dict[str, str]:
    """Return the names in a run's configuration that may be files, by role: `algorithm`, `env`, `wrap.0`, or target."""
    options = config["options"]
    listed = {
        f"{role}.{number}": split(words)[0]
        for role, plugins in _lists(options).items()
        for number, words in enumerate(plugins)
    }
    named = {
        role: split(options[role])[0] for role in targets if isinstance(options.get(role), str)
    }
    return {"algorithm": config["algorithm"], "env": config["env"], **listed, **named}


def _lists(options: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the options of a run that list plugins as `NAME:option=value,…`."""
    return {name: options[name] for name in LISTS if options.get(name)}


def copy_of(run: Path, config: RunConfig, role: str) -> Path | None:
    """Return the run's copy of the file with this role; None if it is not a file.

    Raises:
        BadFile: the copy is not in the run's own `sources`.
    """
    source = config.get("sources", {}).get(role)
    if source is None:
        return None
    copy = Path(source["copy"])
    if copy.parent != Path(FOLDER) or copy.name in ("", "..") or not is_directory(run / FOLDER):
        raise BadFile(
            run / "config.json", f"the copy {plain(str(copy))} is not in the run's {FOLDER}/"
        )
    return run / copy


def original_name(run: Path, config: RunConfig, env: str) -> str:
    """Return the original name of a run's environment if `env` is the run's copy of it; other names unchanged."""
    copy = copy_of(run, config, "env")
    return str(config["env"]) if copy is not None and source_file(env) == copy.resolve() else env


def _name_of_copy(
    run: Path,
    config: RunConfig,
    role: str,
    name: str,
) -> str:
    """Return a name with the run's copy in place of a file, and warn if the file or the copy has changed."""
    copy = copy_of(run, config, role)
    if copy is None:
        return name
    source = config["sources"][role]
    search_folder(Path(source["file"]).parent)  # the copy imports modules next to the file
    if digest(copy) not in ("", source["sha256"]):
        warn(f"{copy} has changed since the run started; this will not give the same bits")
    elif _hash_of(Path(source["file"])) not in ("", source["sha256"]):
        warn(
            f"{source['file']} has changed since the run started; this uses the run's copy, {copy}"
        )
    return f"{copy}:{name.rpartition(':')[2]}"


def _hash_of(path: Path) -> str:
    """Return the hash of a file, or "" if it is not a file."""
    try:
        return digest(path)
    except BadFile:
        return ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a regular file, or "" if it does not exist.

    Raises:
        BadFile: it is not a regular file, or larger than a source file.
    """
    try:
        return hashlib.sha256(content(path)).hexdigest()
    # ValueError: its name has a null character.
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
        return ""

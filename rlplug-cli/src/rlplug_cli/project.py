"""The file of a project: `rlplug.toml` in the working directory or above it has defaults for all of its runs.

    [run]                  # options of every run
    eval_episodes = 20
    [ppo]                  # options of one algorithm
    learning_rate = 1e-3

Another account could place such a file in a directory above, so it must belong to this account, no other account may be
able to write it, and it cannot name code.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rlplug_cli.parameters import check_values, read_tables
from rlplug_core import plugins
from rlplug_core.config import Option, RunOptions, flat, is_target, nearest, schema_of
from rlplug_core.errors import BadConfig, warn

NAME = "rlplug.toml"
#: The table with options of every run.
EVERY_RUN = "run"


def project_options(
    options: Iterable[Option],
    owner: str,
) -> dict[str, object]:
    """Return the options that the project's file sets for a run of the algorithm `owner`.

    Raises:
        UsageError: the file cannot be read. BadConfig: it has an unknown table or option, a wrong value, or names code.
    """
    path = find_project(Path.cwd())
    if path is None:
        return {}
    tables = read_tables(path, "project")
    known = [EVERY_RUN, *plugins.ids("algorithms")]
    for name, table in tables.items():
        if name not in known or not isinstance(table, Mapping):
            raise BadConfig(
                f"{path}: '{name}' is not a table of options{nearest(name, known)}; write [{EVERY_RUN}] "
                "above options of every run and [ppo] above those of an algorithm"
            )
    shared = schema_of(RunOptions)
    values = check_values(path, flat(tables.get(EVERY_RUN, {})), shared, "a run")
    values |= check_values(path, flat(tables.get(owner, {})), options, owner)
    for name, value in values.items():
        if any(is_target(text) or "/" in text or "\\" in text for text in _texts(value)):
            raise BadConfig(
                f"{path}: '{name}' names code or a path, {value!r}; the file of a project cannot, because it is used "
                "without being asked for: put it on the command line or into a --config file"
            )
    return values


def find_project(start: Path) -> Path | None:
    """Return the nearest `rlplug.toml` in `start` or above it, or None; one of another account is not used."""
    for folder in (start, *start.parents):
        path = folder / NAME
        if path.is_file():
            status = path.stat()
            owners = {status.st_uid, path.lstat().st_uid}  # of the file, and of a link to it
            if not hasattr(os, "getuid"):  # Windows has neither owners by number nor modes
                return path
            if owners == {os.getuid()} and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return path
            warn(
                f"{path} is not used, because other accounts can write it; own it and type: chmod go-w {path}"
            )
            return None
    return None


def _texts(value: object) -> Iterator[str]:
    """Yield the strings in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)

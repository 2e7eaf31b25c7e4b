"""Makes index files; the only part of discovery that imports plugins, and only at the author's command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rlplug_core.errors import PluginError
from rlplug_core.plugins.algorithms import algorithm
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.envs import build
from rlplug_core.plugins.index import FORMAT, Index, digest, file, module_file, read, text
from rlplug_core.plugins.loading import load
from rlplug_core.plugins.records import Record, plain
from rlplug_core.plugins.reserved import RESERVED

_PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}|10\.\d{4,9}/[^\s,;)]+")


def make(record: Record) -> Index:
    """The index of an algorithm, provider, wrapper or hook plugin, from its code.

    Raises:
        PluginError: it cannot be loaded, or redefines a reserved option.
    """
    if record.group == "algorithms":
        return _algorithm(record)
    value = load(record)
    ids = tuple(sorted(build(record).ids())) if record.group == "envs" else ()
    return Index(FORMAT, record.group, record.id, _summary(value), *_made_of(record, [value]), ids=ids)


def write(record: Record) -> Path:
    """Write the index file of a contribution into its package; returns its path."""
    path = _path(record)
    made = text(make(record))
    path.parent.mkdir(exist_ok=True)
    path.write_text(made, encoding="utf-8")
    read.cache_clear()
    return path


def drift(record: Record) -> str:
    """Why the index file on disk is not the one that `write` would make, or an empty string."""
    path = _path(record)
    if not path.is_file():
        return f"{record} has no index; write it with: rlplug index {record.distribution}"
    if path.read_text(encoding="utf-8") != text(make(record)):
        return f"the index of {record} is out of date; write it with: rlplug index {record.distribution}"
    return ""


def _path(record: Record) -> Path:
    path = file(record)
    if path is None:
        raise PluginError(f"{record}: '{record.top_level}' is a single module; an index needs a package")
    return path


def _algorithm(record: Record) -> Index:
    from rlplug_core.config import schema

    cls: Any = algorithm(record.full_name)
    options = schema(cls.Config)
    for option in options:
        if option.name in RESERVED:
            raise PluginError(f"{record} has an option '{option.name}', which is reserved for every run; rename it")
    return Index(
        FORMAT,
        "algorithms",
        record.id,
        _summary(cls),
        *_made_of(record, [cls, cls.Config]),
        _paper(cls),
        aliases=tuple(getattr(cls, "aliases", ())),
        runners=tuple(cls.runners),
        spaces=tuple(getattr(cls, "spaces", ())),
        abilities=tuple(getattr(cls, "abilities", ())),
        options=tuple(asdict(option) for option in options),
    )


def _documents(value: Any) -> list[str]:
    """The docstrings of a class, its own one first, and of its module."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    return [doc for doc in (getattr(value, "__doc__", None), module and module.__doc__) if doc]


def _summary(value: Any) -> str:
    documents = _documents(value)
    return plain(documents[0].strip().splitlines()[0], 100) if documents else ""


def _paper(value: Any) -> str:
    return next((found.group() for document in _documents(value) for found in _PAPER.finditer(document)), "")


def _made_of(record: Record, values: Iterable[Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The hashes of the plugin's own modules and the versions of others' among all classes' bases."""
    modules: dict[str, str] = {}
    versions: dict[str, str] = {}
    for module in sorted({name for value in values for name in _modules(record, value)}):
        top = module.partition(".")[0]
        path = module_file(module) if top == record.top_level else None
        if path is not None:
            modules[module] = digest(path)
        elif top != record.top_level and top not in sys.stdlib_module_names and top != "rlplug_core":
            distribution = _distribution_of(top)
            versions[distribution] = metadata.version(distribution)
    return modules, versions


def _modules(record: Record, value: Any) -> list[str]:
    """The modules that define a class and its bases; for anything but a class the one that the entry point names."""
    if isinstance(value, type):
        return [base.__module__ for base in value.__mro__]
    return [record.target.partition(":")[0]]


@cache
def _distribution_of(package: str) -> str:
    for record in records():
        if record.top_level == package:
            return record.distribution
    found = metadata.packages_distributions().get(package)
    if not found:
        raise PluginError(f"no installed distribution owns the module '{package}', which a class inherits from")
    return found[0]

"""Makes index files; the only part of discovery that imports plugins, and only at the author's command."""

from __future__ import annotations

import dataclasses
import re
import sys
import typing
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlplug_core.config.options import Config
from rlplug_core.config.schema import schema
from rlplug_core.errors import PluginError
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.index import (
    CONTRACT,
    FORMAT,
    Index,
    about,
    digest,
    file,
    module_file,
    read,
    text,
)
from rlplug_core.plugins.loading import build, load
from rlplug_core.plugins.preset_files import read as read_presets
from rlplug_core.plugins.records import MODULES, NOUNS, Record
from rlplug_core.plugins.reserved import RESERVED
from rlplug_core.plugins.resolve import LOADERS, algorithm

#: Attributes of a class that an index repeats, unless they come from rlplug-core's own base.
_REPEATED = frozenset({"Config", "abilities", "actions", "aliases", "runners"})
_PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}|10\.\d{4,9}/[^\s,;)]+")


def make(record: Record) -> Index:
    """Return the index of a plugin of any kind from its code.

    Raises:
        PluginError: it cannot be loaded, or redefines a reserved option.
    """
    if record.group == "algorithms":
        return _index_of_algorithm(record)
    if record.group not in ("envs", *MODULES):
        return _index_of_part(record, LOADERS[record.group](record.full_name))
    value = load(record)
    ids = tuple(sorted(build(record).ids())) if record.group == "envs" else ()
    source = value.__module__ if isinstance(value, type) else record.target.partition(":")[0]
    return Index(
        FORMAT,
        record.group,
        record.id,
        _summary(_documents(value)),
        _module_hashes([source]),
        ids=ids,
        contract=CONTRACT,
    )


def write(record: Record) -> Path:
    """Write the index file of a contribution into its package; returns its path."""
    path = _path(record)
    content = text(make(record))
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    read.cache_clear()
    return path


def drift(record: Record) -> str:
    """Return why the index file on disk differs from the one that `write` would make, or an empty string."""
    path = _path(record)
    if not path.is_file():
        return f"{record} has no index; write it with: rlplug index {record.distribution}"
    if path.read_text(encoding="utf-8") != text(make(record)):
        return f"the index of {record} is out of date; write it with: rlplug index {record.distribution}"
    return ""


def _path(record: Record) -> Path:
    path = file(record)
    if path is None:
        raise PluginError(
            f"{record}: '{record.top_level}' is a single module; an index needs a package"
        )
    for candidate in records():
        if (
            candidate.group not in (record.group, *MODULES)
            and candidate.full_name == record.full_name
        ):
            raise PluginError(
                f"{record} and the {NOUNS[candidate.group]} of its name need the same {path.name}; rename one"
            )
    return path


def _index_of_algorithm(record: Record) -> Index:
    cls: Any = algorithm(record.full_name)
    documents = [read_presets(record).summary, *_documents(cls)]
    options = schema(cls.Config)
    for option in options:
        if option.name in RESERVED:
            raise PluginError(
                f"{record} has an option '{option.name}', which is reserved for every run; rename it"
            )
    papers = (match.group() for text in documents for match in _PAPER.finditer(text))
    sources = [*_sources(cls), *_config_sources(cls.Config)]
    return Index(
        FORMAT,
        "algorithms",
        record.id,
        _summary(documents),
        modules=_module_hashes(sources),
        paper=next(papers, ""),
        aliases=tuple(getattr(cls, "aliases", ())),
        runners=tuple(cls.runners),
        actions=tuple(getattr(cls, "actions", ())),
        abilities=tuple(getattr(cls, "abilities", ())),
        options=tuple(asdict(option) for option in options),
        contract=CONTRACT,
    )


def _index_of_part(record: Record, cls: object) -> Index:
    """Return the index of a wrapper, a controller, a memory or a network, which may be a function."""
    config: Any = getattr(cls, "Config", Config)
    sources = _sources(cls) if isinstance(cls, type) else [cls.__module__]
    modules = [*sources, *_config_sources(config)]
    options = tuple(map(asdict, schema(config)))
    # Several may share a module, so the class docstring describes each one.
    summary = about((cls.__doc__ or "").strip().partition("\n")[0])
    return Index(
        FORMAT,
        record.group,
        record.id,
        summary,
        _module_hashes(modules),
        options=options,
        contract=CONTRACT,
    )


def _documents(value: object) -> list[str]:
    """Return the docstrings of a class's module and of the class."""
    module = sys.modules.get(getattr(value, "__module__", ""))
    return [doc for doc in (module and module.__doc__, getattr(value, "__doc__", None)) if doc]


def _summary(documents: Iterable[str]) -> str:
    """Return the first nonempty docstring line; the module docstring of an algorithm names the method and its paper."""
    return about(
        next((document.strip().splitlines()[0] for document in documents if document.strip()), "")
    )


def _module_hashes(values: Iterable[Any]) -> dict[str, str]:
    """Return the hashes of all modules that contribute to an index.

    Raises:
        PluginError: one of them is not a Python file.
    """
    modules: dict[str, str] = {}
    for module in sorted(set(values)):
        path = module_file(module)
        if path is None:
            raise PluginError(
                f"the source of the module '{module}' cannot be found, so it cannot be indexed"
            )
        modules[module] = digest(path)
    return modules


def _sources(cls: type[object]) -> Iterator[str]:
    """Yield the module of a class, and of every base with an attribute that an index repeats."""
    yield cls.__module__
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] != "rlplug_core" and not _REPEATED.isdisjoint(
            vars(base)
        ):
            yield base.__module__


def _config_sources(config: type[Any]) -> Iterator[str]:
    """Yield the modules of a configuration, its bases and its nested ones, as far as they have fields."""
    for base in config.__mro__:
        if (
            vars(base).get("__annotations__")
            and dataclasses.is_dataclass(base)
            and base is not Config
        ):
            yield base.__module__
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _config_sources(typing.cast("type[Any]", hints[field.name]))

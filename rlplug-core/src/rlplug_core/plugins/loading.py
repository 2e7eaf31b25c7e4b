"""Imports the target of a plugin record, and turns every failure into one sentence."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlplug_core.config.import_string import attribute_of, describe, import_quietly
from rlplug_core.conflicts import explain_import
from rlplug_core.errors import MissingPackage, PluginError, plain
from rlplug_core.plugins.crashes import name_on_crash
from rlplug_core.plugins.records import Record, canonical

if TYPE_CHECKING:
    from rlplug_core.protocols import Provider


def load(record: Record) -> Any:
    """Return the object that a record's entry point names.

    Raises:
        PluginError: its module raised or lacks the object. `MissingPackage`: a package it needs is not installed.
    """
    module, _, attribute = record.target.partition(":")
    loaded = _import(module, record)
    return attribute_of(loaded, attribute, str(record)) if attribute else loaded


def _import(module: str, record: Record) -> ModuleType:
    try:
        if record.first_party or module in sys.modules:
            return import_quietly(module)
        with name_on_crash(str(record), f"switch it off with -P no:{record.distribution}"):
            return import_quietly(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing.partition(".")[0] in ("", record.top_level):
            raise PluginError(
                f"{record} cannot be loaded: {plain(str(error))}; reinstall it: "
                f"python -m pip install --force-reinstall {record.distribution}"
            ) from error
        raise MissingPackage(_describe_missing(record, missing)) from error
    # A foreign module may raise anything while it is imported.
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{record} cannot be loaded: {describe(error)}{explain_import(error, module)}; 'rlplug plugins' shows all, "
            "--traceback shows where"
        ) from error


def _describe_missing(record: Record, module: str) -> str:
    """Return which package a plugin needs for a missing module, and the command that installs it.

    The command names only a requirement that the plugin declares: a package of the module's name may be anyone's.
    """
    from importlib import metadata  # 13 ms

    package = module.partition(".")[0]
    is_older = package != module and find_spec(package) is not None
    sentence = f"{record} needs the package '{package}', which is not installed"
    if is_older:
        sentence = f"{record} needs the module '{module}', which the installed version of '{package}' does not have"
    for line in metadata.distribution(record.distribution).requires or ():
        name, _, marker = line.partition(";")
        match = re.match(r"[\w.-]*", name.strip())
        if match and canonical(match[0]).replace("-", "_") == package.lower():
            if is_older:
                return (
                    f"{sentence}: python -m pip install --upgrade {match[0]} {record.distribution}"
                )
            extra = marker.partition("extra ==")[2].strip(" '\"()")
            requirement = f"'{record.distribution}[{extra}]'" if extra else f"'{name.strip()}'"
            return f"{sentence}: python -m pip install {requirement}"
    return f"{sentence}, and {record.distribution} does not declare it; ask its author"


def check_attributes(
    value: object,
    attributes: tuple[str, ...],
    subject: str,
    noun: str,
) -> type:
    """Return `value` if it is a class with all `attributes`; a shallow check before any training.

    Raises:
        PluginError: it is not a class, or attributes are missing.
    """
    if not isinstance(value, type):
        raise PluginError(f"{subject} is not a class; {noun} must be one")
    missing = [name for name in attributes if getattr(value, name, None) is None]
    if missing:
        raise PluginError(
            f"{subject} is not {noun}: it has no {', '.join(repr(name) for name in missing)}"
        )
    return value


def build(record: Record) -> Provider:
    """Return the environment provider of a record; imports its plugin."""
    cls = check_attributes(load(record), ("ids", "make"), str(record), "an environment provider")
    try:
        provider: Provider = cls()
    except Exception as error:  # a foreign constructor may raise anything
        raise PluginError(
            f"{record} cannot be built: {describe(error)}; --traceback shows where"
        ) from error
    return provider

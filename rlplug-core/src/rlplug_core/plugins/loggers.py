"""From a user's word to a logger: a module or an object with hooks."""

from __future__ import annotations

from rlplug_core.config.import_string import describe, is_target, load_target
from rlplug_core.errors import PluginError
from rlplug_core.plugins.loading import load
from rlplug_core.plugins.names import usable


def logger(name: str) -> tuple[str, object]:
    """The full name and the hooks of an id, `distribution/id`, `module:Class` or `./file.py:Class`.

    A class is called without arguments; anything else is taken as it is.

    Raises:
        UsageError: nothing has this name, or several have.
        PluginError: it is disabled, incompatible or broken, or cannot be built; `MissingPackage` says what it needs.
    """
    if not is_target(name):
        record = usable("loggers", name)
        return record.full_name, load(record)
    found = load_target(name, "logger")
    if not isinstance(found, type):
        return name, found
    try:
        return name, found()
    except Exception as error:  # a foreign constructor may raise anything
        raise PluginError(
            f"logger '{name}' cannot be built: {describe(error)}; --traceback shows where"
        ) from error

"""From a user's word to an algorithm's class."""

from __future__ import annotations

from rlplug_core.config.import_string import is_target, load_target
from rlplug_core.plugins.loading import check_parts, load
from rlplug_core.plugins.names import usable

_PARTS = ("Config", "runners", "agent", "buffer", "update", "state_dict", "load_state_dict")


def algorithm(name: str) -> type:
    """The class behind an id, `distribution/id`, an alias, `module:Class` or `./file.py:Class`.

    Only the plugin that is named is imported.

    Raises:
        UsageError: nothing has this name, or several have.
        PluginError: the plugin is disabled, incompatible or broken, or the class is no algorithm.
    """
    if is_target(name):
        return check_parts(load_target(name, "algorithm"), _PARTS, f"'{name}'", "an algorithm")
    record = usable("algorithms", name)
    return check_parts(load(record), _PARTS, str(record), "an algorithm")

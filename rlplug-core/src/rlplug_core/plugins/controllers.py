"""From a user's word to a controller's class."""

from __future__ import annotations

from rlplug_core.config.import_string import is_target, load_target
from rlplug_core.errors import UsageError
from rlplug_core.plugins.loading import check_parts, load
from rlplug_core.plugins.names import usable

_PARTS = ("state_dict", "load_state_dict")


def controller(name: str) -> type:
    """The class behind an id, `distribution/id`, `module:Class` or `./file.py:Class`.

    Raises:
        UsageError: nothing has this name, or several have.
        PluginError: the plugin is disabled, incompatible or broken, or the class is no controller.
    """
    if is_target(name):
        if not name.rpartition(":")[2].isidentifier() and not name.endswith(".py"):
            raise UsageError(
                f"'{name}': options are written NAME:option=value, as in early-stopping:patience=3"
            )
        return check_parts(load_target(name, "controller"), _PARTS, f"'{name}'", "a controller")
    record = usable("controllers", name)
    return check_parts(load(record), _PARTS, str(record), "a controller")

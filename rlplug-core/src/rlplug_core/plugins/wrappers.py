"""From a user's word to a wrapper's class."""

from __future__ import annotations

from rlplug_core.config.import_string import is_target, load_target
from rlplug_core.errors import UsageError
from rlplug_core.plugins.loading import check_parts, load
from rlplug_core.plugins.names import usable

_PARTS = ("reset", "step", "close", "state_dict", "load_state_dict")


def wrapper(name: str) -> type:
    """The class behind an id, `distribution/id`, `module:Class` or `./file.py:Class`; it may be a `gymnasium.Wrapper`.

    Raises:
        UsageError: nothing has this name, or several have.
        PluginError: the plugin is disabled, incompatible or broken, or the class is no wrapper.
    """
    from rlplug_core.plugins.single_wrappers import (
        is_single,  # with torch and gymnasium, so only here
    )

    if is_target(name):
        if not name.rpartition(":")[2].isidentifier() and not name.endswith(".py"):
            raise UsageError(
                f"'{name}': a wrapper's options are written NAME:option=value, as in time-limit:steps=200"
            )
        code = load_target(name, "wrapper")
        return code if is_single(code) else check_parts(code, _PARTS, f"'{name}'", "a wrapper")
    record = usable("wrappers", name)
    return check_parts(load(record), _PARTS, str(record), "a wrapper")

"""Find memories and networks by name: those of plugins, `module:Name` or `./file.py:Name`.

Networks import nothing from plugins, so `PartSpec` is imported when a name is first looked up.
"""

from __future__ import annotations


def part_code(noun: str, words: str) -> object:
    """Return the class or function of a `memory` or a `network`, without its options; raise as `build_part` does."""
    from rlplug_core.plugins.spec import PartSpec

    return PartSpec.parse(noun, words).code


def build_part(noun: str, words: str, *arguments: object) -> object:
    """Return the `memory` or `network` that `NAME:option=value,…` names, made with these arguments and its options.

    Raises:
        UsageError: no plugin has this name. BadConfig: an option is wrong. PluginError: it cannot be made.
    """
    from rlplug_core.plugins.spec import PartSpec

    return PartSpec.parse(noun, words).build(*arguments)

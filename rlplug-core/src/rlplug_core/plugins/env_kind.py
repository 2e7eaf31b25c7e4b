"""The kind of an environment; it selects an algorithm's preset if no table names the id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlplug_core.config.files import keep_directory
from rlplug_core.config.import_string import is_target
from rlplug_core.plugins.env_source import EnvSource
from rlplug_core.plugins.names import find
from rlplug_core.plugins.preset_files import chain
from rlplug_core.plugins.presets import is_known

if TYPE_CHECKING:
    from rlplug_core.types import Spec


def kind_of(spec: Spec) -> str:
    """Return `multi-agent` if several agents share a world, else `pixels`, `continuous` or `discrete`.

    `pixels` means image observations, `continuous` that a part of the action is a `Box`.
    """
    from rlplug_core.nets.number_scale import has_images  # with torch, so only here

    if spec.agents:
        return "multi-agent"
    if has_images(spec.obs):
        return "pixels"
    return "continuous" if _has_box(spec.action) else "discrete"


def kind_for(algorithm: str, source: EnvSource, wrap: Sequence[str]) -> str:
    """Return the kind that selects an algorithm's preset, for an environment inside wrappers.

    It is empty if a table names the environment's id, or if the algorithm has no table for kinds: then no environment
    is made.

    Raises:
        UnknownEnv, MissingPackage, PluginError, UsageError: the environment cannot be made.
    """
    if is_target(algorithm) or is_known(algorithm, source.name):
        return ""
    if not any(presets.kinds for presets in chain(find("algorithms", algorithm))):
        return ""
    from rlplug_core.plugins.spec import WrapperSpec, wrap_env

    with keep_directory():
        env = wrap_env(source.make(1), map(WrapperSpec.parse, wrap))
        env.close()
    return kind_of(env.spec)


def _has_box(space: object) -> bool:
    from gymnasium import spaces

    inner_spaces = (
        space.spaces.values() if isinstance(space, spaces.Dict) else getattr(space, "spaces", ())
    )
    return isinstance(space, spaces.Box) or any(map(_has_box, inner_spaces))

"""From an environment id to one environment that is made to be watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlplug_core.config.targets import is_target, load_target
from rlplug_core.errors import UsageError
from rlplug_core.plugins.envs import DEFAULT, build, make_env, provider
from rlplug_core.plugins.names import usable

if TYPE_CHECKING:
    from rlplug_core.protocols import Env


def make_shown(env_id: str, render_mode: str) -> Env:
    """One environment, `SupportsShow`: by id or by class; a function's own must be able to show itself.

    Args:
        render_mode: Gymnasium's, `human` for a window or `rgb_array` for frames.

    Raises:
        UnknownEnv, MissingPackage, PluginError: as `make_env`. UsageError: it cannot be watched.
    """
    from gymnasium import Env as Single

    from rlplug_core.protocols import SupportsAdopt, SupportsRender  # with torch and gymnasium, so only here

    code: Any = load_target(env_id, "environment") if _names_code(env_id) else None
    if isinstance(code, type) and issubclass(code, Single):
        cls: Any = code
        adopter = build(usable("envs", DEFAULT))
        if isinstance(adopter, SupportsAdopt):
            return adopter.adopt(lambda: cls(render_mode=render_mode), 1, env_id)
    if code is not None:
        return make_env(env_id, 1)
    maker = provider(env_id)
    if not isinstance(maker, SupportsRender):
        raise UsageError(f"{env_id} cannot be watched: its provider, {type(maker).__name__}, has no 'make_shown'")
    return maker.make_shown(env_id, render_mode)


def _names_code(env_id: str) -> bool:
    """`module:Some-v0` is an id with the module that registers it."""
    return is_target(env_id) and (env_id.endswith(".py") or env_id.rpartition(":")[2].isidentifier())

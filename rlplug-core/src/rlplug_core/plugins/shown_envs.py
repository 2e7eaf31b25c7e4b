"""One environment that is made to be watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlplug_core.errors import UsageError
from rlplug_core.plugins.envs import by_provider, load_code
from rlplug_core.plugins.user_envs import made, takes

if TYPE_CHECKING:
    from rlplug_core.protocols import Env, Provider

#: Gymnasium's argument that says how an environment is drawn.
RENDER_MODE = "render_mode"


def make_shown(
    name: str, render_mode: str, arguments: Mapping[str, object], given: object = None
) -> Env:
    """One environment, `SupportsShow`: by id, by class or by function.

    A class or a function is given `render_mode` where it takes it; else what it makes must be able to show itself.

    Args:
        render_mode: Gymnasium's, `human` for a window or `rgb_array` for frames.
        given: the class or the function, where it was handed over in Python.

    Raises:
        UnknownEnv, MissingPackage, PluginError: as `make_env`. UsageError: it cannot be watched.
    """
    from rlplug_core.protocols import SupportsRender  # with torch and gymnasium, so only here

    code = load_code(name) if given is None else given
    if code is not None:
        shown = {RENDER_MODE: render_mode} if takes(code, RENDER_MODE) else {}
        return made(code, name, 1, {**arguments, **shown})

    def make(maker: Provider, known: str) -> Env:
        if not isinstance(maker, SupportsRender):
            raise UsageError(
                f"{name} cannot be watched: its provider, {type(maker).__name__}, has no 'make_shown'"
            )
        return maker.make_shown(known, render_mode)

    return by_provider(name, arguments, make)

"""From an environment id to an environment: its namespace names the provider, and only that plugin is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rlplug_core.config.import_string import load_target
from rlplug_core.errors import PluginError, UnknownEnv, UsageError
from rlplug_core.plugins import index
from rlplug_core.plugins.discovery import usable_records
from rlplug_core.plugins.known import KNOWN, install_line
from rlplug_core.plugins.loading import build
from rlplug_core.plugins.names import DEFAULT, describe_offers, env_parts, provider_in, usable
from rlplug_core.plugins.records import Record
from rlplug_core.plugins.user_envs import (
    accepts_keyword,
    call_user_code,
    make_from_code,
    with_device,
)

if TYPE_CHECKING:
    from rlplug_core.protocols import Env, Provider

#: The argument of Gymnasium that says how an environment is drawn.
RENDER_MODE = "render_mode"


def make_env(
    env_id: str,
    num_envs: int,
    arguments: Mapping[str, object] | None = None,
    device: str = "cpu",
) -> Env:
    """Make `num_envs` environments as one, from an id, `distribution/namespace/id`, `module:Name` or `./file.py:Name`.

    The last two name a class or a function of the kinds that `rlplug_core.plugins.user_envs.make_from_code` describes.

    Args:
        arguments: keyword arguments for the class, the function, or the registered id.
        device: the device of environments that give tensors.

    Raises:
        UnknownEnv: no provider knows the id. MissingPackage: a package it needs is not installed.
        UsageError: the argument does not exist. PluginError: the provider is disabled, incompatible or broken.
    """
    arguments = arguments or {}
    code = load_code(env_id)
    if code is not None:
        return make_from_code(code, env_id, num_envs, with_device(code, arguments, device))

    def make(maker: Provider, provider_id: str) -> Env:
        from rlplug_core.protocols import SupportsDevice  # with torch, so only here

        if isinstance(maker, SupportsDevice) and "device" not in arguments:
            maker = maker.on_device(device)
        return maker.make(provider_id, num_envs)

    return by_provider(env_id, arguments, make)


def by_provider(
    env_id: str,
    arguments: Mapping[str, object],
    make: Callable[[Provider, str], Env],
) -> Env:
    """Call `make` with the provider of an id and the id in that provider's form.

    It is the provider of the id's namespace, or the default one without a namespace. If that one does not know the id,
    it is another provider with the id in its index.

    Raises:
        UnknownEnv: no provider knows the id. PluginError: a provider raised an error, or cannot be used.
    """
    record = record_of(env_id)
    (full_name, short_id) = env_parts(env_id)

    def make_from(record: Record, provider_id: str) -> Env:
        maker = build_provider(record, arguments)
        return call_user_code(lambda: make(maker, provider_id), env_id)

    if record is None:
        return _find_in_registry(env_id, make_from)
    try:
        return make_from(record, short_id)
    except UnknownEnv:
        candidates = [] if full_name else _providers_listing(env_id, excluded=record)
        if not candidates:
            raise
        return make_from(candidates[0], env_id)


def env_ids() -> tuple[str, ...]:
    """Return every id that an index lists, without importing anything."""
    return tuple(sorted({id for record in usable_records("envs") for id in index.env_ids(record)}))


def load_code(env_id: str) -> object:
    """Import the class or function of `module:Name` or `./file.py:Name`.

    Return None for other ids, and for `module:Name` if the module registers an id `Name`, without a version, with
    Gymnasium.

    Raises:
        UsageError: the file, the module or the name does not exist. PluginError: the code raised while it was imported.
    """
    if not names_code(env_id):
        return None
    try:
        code = load_target(env_id, "environment")
    except PluginError:
        if _registers(env_id):
            return None
        raise
    return None if _registers(env_id) else code


def _registers(env_id: str) -> bool:
    """Return whether an imported module has registered an id without a version with Gymnasium."""
    module, _, name = env_id.rpartition(":")
    if module.endswith(".py") or "gymnasium" not in sys.modules:
        return False
    from gymnasium import registry

    return name in registry


def names_code(env_id: str) -> bool:
    """Return whether a name is code: `module:Name` and `file.py:Name` are.

    In `module:Some-v0`, Gymnasium imports a module before it looks up an id. After a provider's name, as in
    `envpool:Some-v0`, the provider reads the rest.
    """
    module, _, name = env_id.rpartition(":")
    if env_id.endswith(".py") or module.endswith(".py"):
        return True
    return bool(module and name.isidentifier() and not provider_in(env_id))


def record_of(env_id: str) -> Record | None:
    """Return the provider of an id's namespace, or the default one without a namespace; None if no plugin has it."""
    if full := env_parts(env_id)[0]:
        return usable("envs", full)
    if named := provider_in(env_id):
        return usable("envs", named)
    return None if "/" in env_id else usable("envs", DEFAULT)


def _providers_listing(env_id: str, excluded: Record) -> list[Record]:
    """Return other providers with a pattern in their index that matches the id."""
    providers = []
    for record in usable_records("envs"):
        patterns = () if record == excluded else index.env_ids(record)
        if any(fnmatchcase(env_id, pattern) for pattern in patterns):
            providers.append(record)
    return providers


def _find_in_registry(
    env_id: str,
    make_from: Callable[[Record, str], Env],
) -> Env:
    """Look in the default provider's registry for an id with a namespace that no plugin has."""
    namespace = env_id.rpartition("/")[0]
    owners = {name.lower(): distribution for name, distribution in KNOWN["envs"].items()}
    if namespace.lower() in owners:
        line = install_line(owners[namespace.lower()])
        raise UnknownEnv(f"no environment '{env_id}': '{namespace}/…' comes with: {line}")
    try:
        return make_from(usable("envs", DEFAULT), env_id)
    except UnknownEnv as error:
        from gymnasium import registry  # heavy, and the provider has imported it

        if any(spec.namespace == namespace for spec in registry.values()):
            raise
        if offer := describe_offers("envs", namespace.lower()):
            raise UnknownEnv(
                f"no plugin with the namespace '{namespace}' is installed; {offer}"
            ) from error
        providers = ", ".join(sorted({record.id for record in usable_records("envs")})) or "none"
        raise UnknownEnv(
            f"{error}; no plugin has the namespace '{namespace}' (providers: {providers})"
        ) from error


def build_provider(
    record: Record,
    arguments: Mapping[str, object],
) -> Provider:
    """Return the provider of a record, set to make environments with these keyword arguments.

    Raises:
        UsageError: its environments take no arguments.
    """
    from rlplug_core.protocols import SupportsArguments  # with torch and gymnasium, so only here

    maker = build(record)
    if not arguments:
        return maker
    if not isinstance(maker, SupportsArguments):
        raise UsageError(
            f"environments of {record} take no arguments; leave out --env.{min(arguments)}"
        )
    return maker.with_arguments(arguments)


def make_shown(
    name: str,
    render_mode: str,
    arguments: Mapping[str, object],
    given: object = None,
) -> Env:
    """Make one environment that can be rendered, from an id, a class or a function.

    A class or a function gets `render_mode` if it has that parameter; else its environment must render without it.

    Args:
        render_mode: Gymnasium's, `human` for a window or `rgb_array` for frames.
        given: the class or the function, if it was passed in Python.

    Raises:
        UnknownEnv, MissingPackage, PluginError: as in `make_env`. UsageError: it cannot be rendered.
    """
    from rlplug_core.protocols import SupportsRender  # with torch and gymnasium, so only here

    code = load_code(name) if given is None else given
    if code is not None:
        shown = {RENDER_MODE: render_mode} if accepts_keyword(code, RENDER_MODE) else {}
        return make_from_code(code, name, 1, {**arguments, **shown})

    def make(maker: Provider, provider_id: str) -> Env:
        if not isinstance(maker, SupportsRender):
            raise UsageError(
                f"{name} cannot be watched: its provider, {type(maker).__name__}, has no 'make_shown'"
            )
        return maker.make_shown(provider_id, render_mode)

    return by_provider(name, arguments, make)

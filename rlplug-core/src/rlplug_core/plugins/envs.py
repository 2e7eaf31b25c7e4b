"""From an environment id to an environment: its namespace names the provider, and only that plugin is imported."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rlplug_core.config.targets import describe, load_target
from rlplug_core.errors import PluginError, RlplugError, UnknownEnv
from rlplug_core.plugins import index
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.known import KNOWN, install_line
from rlplug_core.plugins.loading import check_parts, load
from rlplug_core.plugins.names import usable
from rlplug_core.plugins.records import Record

if TYPE_CHECKING:
    from rlplug_core.protocols import Env, Provider

#: The provider of ids without a namespace.
DEFAULT = "gymnasium"


def make_env(env_id: str, num_envs: int) -> Env:
    """An environment of `num_envs` rows: by id, or by `module:Name` or `./file.py:Name`.

    Such a name is a subclass of `gymnasium.Env`, or a callable that takes `num_envs` and returns an environment.

    Raises:
        UnknownEnv: no provider knows the id. MissingPackage: a package it needs is not installed.
        PluginError: the provider is disabled, incompatible or broken.
    """
    if _names_code(env_id):
        return _made(load_target(env_id, "environment"), env_id, num_envs)
    record = _record(env_id)
    if record is None:
        return _elsewhere(env_id, num_envs)
    try:
        return build(record).make(env_id, num_envs)
    except UnknownEnv:
        others = _listing(env_id, but=record)
        if not others:
            raise
        return build(others[0]).make(env_id, num_envs)


def provider(env_id: str) -> Provider:
    """The provider that answers for an id's namespace.

    Raises:
        UnknownEnv: no provider has this namespace. PluginError: it cannot be used.
    """
    return build(_record(env_id) or usable("envs", DEFAULT))


def env_ids() -> tuple[str, ...]:
    """Every id that an index lists, without importing anything."""
    return tuple(sorted({id for record in _ok() for id in index.env_ids(record)}))


def _names_code(env_id: str) -> bool:
    """`module:Name` and `file.py:Name` name code; `module:Some-v0` is Gymnasium's way to name a module beside an id."""
    place, _, name = env_id.rpartition(":")
    return env_id.endswith(".py") or place.endswith(".py") or bool(place and name.isidentifier())


def _ok() -> list[Record]:
    return [record for record in records() if record.group == "envs" and record.status == "ok"]


def _record(env_id: str) -> Record | None:
    """The provider of the id's namespace, or the default one without; None where no plugin has the namespace."""
    namespace, slash, _ = env_id.rpartition("/")
    if not slash:
        return usable("envs", DEFAULT)
    word = namespace.lower()
    names = [r.id for r in records() if r.group == "envs" and r.status != "shadowed" and r.id.lower() == word]
    return usable("envs", names[0]) if names else None


def _listing(env_id: str, but: Record) -> list[Record]:
    """Other providers whose index lists a pattern that the id matches."""
    return [r for r in _ok() if r != but and any(fnmatchcase(env_id, pattern) for pattern in index.env_ids(r))]


def _elsewhere(env_id: str, num_envs: int) -> Env:
    """An id whose namespace no plugin has may still be in the default provider's registry."""
    namespace = env_id.rpartition("/")[0]
    known = {name.lower(): distribution for name, distribution in KNOWN["envs"].items()}
    if namespace.lower() in known:
        line = install_line(known[namespace.lower()])
        raise UnknownEnv(f"no environment '{env_id}': '{namespace}/…' comes with: {line}")
    try:
        return build(usable("envs", DEFAULT)).make(env_id, num_envs)
    except UnknownEnv as error:
        raise UnknownEnv(f"{error}; no plugin has the namespace '{namespace}' (providers: {_names()})") from error


def _names() -> str:
    return ", ".join(sorted({record.id for record in _ok()})) or "none"


def build(record: Record) -> Provider:
    """The provider behind a record; imports its plugin."""
    cls = check_parts(load(record), ("ids", "make"), str(record), "an environment provider")
    try:
        built: Provider = cls()
    except Exception as error:  # a foreign constructor may raise anything
        raise PluginError(f"{record} cannot be built: {describe(error)}; --traceback shows where") from error
    return built


def _made(code: object, target: str, num_envs: int) -> Env:
    from gymnasium import Env as Single

    from rlplug_core.protocols import SupportsAdopt  # with torch and gymnasium, so only here

    if isinstance(code, type) and issubclass(code, Single):
        adopter = build(usable("envs", DEFAULT))
        if not isinstance(adopter, SupportsAdopt):
            raise PluginError(f"the environment provider '{DEFAULT}' cannot adopt '{target}'; upgrade rlplug-envs")
        return _called(lambda: adopter.adopt(code, num_envs, target), target)
    if not callable(code):
        raise PluginError(f"'{target}' is neither a subclass of gymnasium.Env nor a callable that takes rows")
    env = _called(lambda: code(num_envs), target)
    missing = [part for part in ("spec", "reset", "step", "state_dict") if getattr(env, part, None) is None]
    if missing:
        raise PluginError(f"'{target}' made no rlplug environment: it has no {', '.join(map(repr, missing))}")
    return env


def _called(make: Callable[[], Env], target: str) -> Env:
    try:
        return make()
    except RlplugError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise PluginError(f"'{target}' cannot be made: {describe(error)}; --traceback shows where") from error

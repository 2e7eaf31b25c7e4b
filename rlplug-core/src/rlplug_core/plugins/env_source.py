"""`EnvSource`: makes the environments of a run from any form that a user gives, and has the name that is recorded.

The forms are an id, `module:Name` and `./file.py:Name`; in Python also a class, a function, or an object: a
`gymnasium.Env`, a `gymnasium.vector.VectorEnv`, or an environment of ours.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rlplug_core.config.import_path import UNNAMED, import_path
from rlplug_core.config.import_string import absolute, describe
from rlplug_core.config.parse import nest
from rlplug_core.errors import UsageError
from rlplug_core.plugins.envs import make_env, make_shown
from rlplug_core.plugins.user_envs import adopt_like, hold, make_from_code, with_device

if TYPE_CHECKING:
    from rlplug_core.protocols import Env

#: Prefixes of options that are arguments of the environment, and of the evaluation environment.
TRAIN = "env."
EVAL = "eval_env."


@dataclass(frozen=True)
class EnvSource:
    """Makes the environments of a run, or returns one that exists already.

    Attributes:
        name: the recorded name: an id or an import path; for an object that no name can rebuild, its display name.
        arguments: keyword arguments for the class, the function, or the registered id.
        given: a class, a function or an object passed in Python.
        unnamed: the reason why no name can rebuild it, or empty.
        copied: a copy of an object before its first use, for evaluations, or the reason why it cannot be copied.
        device: the device of environments that give tensors.
    """

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    given: object = None
    unnamed: str = ""
    copied: object = None
    device: str = "cpu"

    def make(self, num_envs: int) -> Env:
        """Make `num_envs` environments, or return an object unchanged.

        Raises:
            UnknownEnv, MissingPackage, PluginError: it cannot be made. UsageError: an object has another number of
                environments, or the argument does not exist.
        """
        if isinstance(self.given, _Copies):
            return self.given(num_envs)
        if self.given is None:
            return make_env(self.name, num_envs, self.arguments, self.device)
        if self.is_object:
            return hold(self.given, self.name)
        arguments = with_device(self.given, self.arguments, self.device)
        return make_from_code(self.given, self.name, num_envs, arguments)

    def make_shown(self, render_mode: str) -> Env:
        """Make one environment that can be rendered; for an object, a copy of it.

        Raises:
            UsageError: it cannot be rendered. Also all errors of `make`.
        """
        if isinstance(self.given, _Copies):
            return self.given(1)
        return make_shown(self.name, render_mode, self.arguments, self.given)

    @property
    def is_object(self) -> bool:
        """Return whether the user gave an environment, not something that makes one."""
        return (
            self.given is not None
            and not isinstance(self.given, type | FunctionType)
            and _can_step(self.given)
        )

    @property
    def num_envs(self) -> int | None:
        """Return the number of environments in an object; None if the source can make any number."""
        if not self.is_object:
            return None
        from rlplug_core.types import Spec  # with gymnasium, so only here

        spec = getattr(self.given, "spec", None)
        vector = spec if isinstance(spec, Spec) else self.given
        return int(getattr(vector, "num_envs", 1))

    def with_copies(self) -> EnvSource:
        """Return a source for evaluations, which step copies of an object, not the object that training uses.

        Raises:
            UsageError: the object cannot be copied.
        """
        if not self.is_object:
            return self
        if isinstance(self.copied, str):
            raise UsageError(
                f"evaluations need a separate environment, and {self.name} cannot be copied ({self.copied}); give "
                "a class or a function that makes it, or name another one with the option eval_env"
            )
        return replace(self, given=_Copies(self.copied, self.name), copied=None)

    def with_arguments(self, arguments: Mapping[str, object]) -> EnvSource:
        """Return the same source with these arguments, which override its own.

        Raises:
            UsageError: it is an object, which exists already.
        """
        if arguments and self.is_object:
            raise UsageError(
                f"{self.name} is an object, which takes no arguments; give the class or function that makes it"
            )
        return replace(self, arguments={**self.arguments, **arguments})


@dataclass(frozen=True)
class _Copies:
    """A function that makes environments by copying one."""

    env: Any
    name: str

    def __call__(self, num_envs: int) -> Env:
        env: Env = adopt_like(self.env, lambda: copy.deepcopy(self.env), num_envs, self.name)
        return env


def source_of(
    env: object,
    arguments: Mapping[str, object] | None = None,
) -> EnvSource:
    """Return the source of environments for any form.

    Raises:
        UsageError: an argument is not a plain value.
    """
    arguments = _check_arguments(arguments or {})
    if isinstance(env, EnvSource):
        return env.with_arguments(arguments)
    if isinstance(env, str):
        return EnvSource(absolute(env), arguments)
    if isinstance(env, functools.partial) and not env.args and _is_plain(env.keywords):
        return source_of(env.func, {**env.keywords, **arguments})
    if isinstance(env, type) or (callable(env) and not _can_step(env)):
        name, unnamed = import_path(env)
        return EnvSource(name, arguments, env, unnamed)
    if not _can_step(env):
        raise UsageError(
            f"{env!r} is not an environment; give an id, a class, a function that returns an environment, or one itself"
        )
    bare = getattr(env, "unwrapped", env)
    name = getattr(getattr(env, "spec", None), "id", None) or type(bare).__name__
    source = EnvSource(str(name), {}, env, UNNAMED, _copy(env))
    return source.with_arguments(arguments)


def take_arguments(
    values: Mapping[str, object],
    prefix: str,
) -> dict[str, Any]:
    """Return the keyword arguments of an environment among options by dotted name, `TRAIN` or `EVAL` by `prefix`."""
    arguments = {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix)
    }
    return nest(arguments)


def _can_step(env: object) -> bool:
    return callable(getattr(env, "step", None)) and callable(getattr(env, "reset", None))


def _copy(env: object) -> Any:
    """Return a copy of an environment, or the reason why it cannot be copied."""
    from gymnasium.vector import AsyncVectorEnv

    # A copy would close the pipes of both.
    if isinstance(getattr(env, "unwrapped", env), AsyncVectorEnv):
        return "its environments are other processes"
    try:
        return copy.deepcopy(env)
    except Exception as error:  # noqa: BLE001 - a foreign object may refuse to be copied in any way
        return describe(error)


def _check_arguments(arguments: Mapping[str, object]) -> dict[str, Any]:
    """Return arguments as a dictionary; raise UsageError if one of them cannot be recorded."""
    for name, value in arguments.items():
        if not _is_plain(value):
            raise UsageError(
                f"the environment's argument '{name}' is a {type(value).__name__}, which a run cannot record; write a "
                "function that makes the environment: ./file.py:make"
            )
    return dict(arguments)


def _is_plain(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False

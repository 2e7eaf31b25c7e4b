"""`RunRequest`: the run that a user asks for, made once by the command line or by `train`, and immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlplug_core.config.import_path import import_path
from rlplug_core.config.schema import flat
from rlplug_core.errors import UsageError
from rlplug_core.plugins.env_kind import kind_for
from rlplug_core.plugins.env_source import EVAL, TRAIN, EnvSource, source_of, take_arguments
from rlplug_core.plugins.presets import preset

#: The last words of the dotted names of options that take a function or a class, of a network or a memory.
NAMED = ("factory", "encoder", "memory")


@dataclass(frozen=True)
class RunRequest:
    """A run that a user asks for.

    Attributes:
        algorithm: an id or an import path.
        env: the environment, without the arguments among the values.
        values: options of the run and of the algorithm, and arguments of environments as `env.NAME` and
            `eval_env.NAME`, all by dotted name. A missing option has its default.
        origins: the origin of each value: `option`, `set`, `config`, `preset`, …
    """

    algorithm: str
    env: EnvSource
    values: Mapping[str, Any]
    origins: Mapping[str, str]

    @classmethod
    def make(
        cls,
        algorithm: str,
        env: object,
        options: Mapping[str, object],
        origins: Mapping[str, str] | None = None,
    ) -> RunRequest:
        """Return a request without presets.

        Args:
            env: an environment in any form that `env_source` knows.
            options: by dotted name or nested; functions, as of `net.factory`, are recorded by import path.
            origins: the origin of each option; default: `option`.

        Raises:
            UsageError: it is not an environment, or a function has no import path.
        """
        bare = source_of(env)
        values = {name: _to_record(name, value) for name, value in flat(options).items()}
        origins = dict.fromkeys(values, "option") if origins is None else origins
        by_user = "num_envs" in values and origins.get("num_envs") != "preset"
        if bare.num_envs is not None and not by_user:  # an object keeps its number
            values["num_envs"] = bare.num_envs
        return cls(algorithm, bare, values, origins)

    def with_presets(self) -> RunRequest:
        """Return the request with the presets of its algorithm for its environment; its own values override them.

        Raises:
            UsageError, PluginError: the algorithm or the environment does not exist.
        """
        kind = kind_for(self.algorithm, self.source, self.values.get("wrap", ()))
        presets = preset(self.algorithm, self.env.name, kind)
        origins = dict.fromkeys(presets, "preset") | dict(self.origins)
        return RunRequest(self.algorithm, self.env, presets | dict(self.values), origins)

    @property
    def set_by_user(self) -> list[str]:
        """Return the names of the values that come neither from presets nor from defaults."""
        return [
            name for name, origin in self.origins.items() if origin not in ("preset", "default")
        ]

    @cached_property
    def options(self) -> dict[str, Any]:
        """Return the options of the run and of the algorithm; `eval_env` is the recorded name.

        Raises:
            UsageError: the environment for evaluations has no import path.
        """
        prefixes = (TRAIN, EVAL)
        values = {
            name: value for name, value in self.values.items() if not name.startswith(prefixes)
        }
        if values.get("eval_env"):
            values["eval_env"] = self.eval_source.name
        return values

    @cached_property
    def source(self) -> EnvSource:
        """Return the environment with its arguments.

        Raises:
            UsageError: it is an object, which takes no arguments, or an argument is not a plain value.
        """
        return source_of(self.env, take_arguments(self.values, TRAIN))

    @cached_property
    def eval_source(self) -> EnvSource:
        """Return the environment for evaluations: `source` itself unless options name another one.

        Raises:
            UsageError: the environment has no import path.
        """
        arguments = take_arguments(self.values, EVAL)
        requested = self.values.get("eval_env") or None
        if requested is None:
            return self.source.with_arguments(arguments) if arguments else self.source
        source = source_of(requested, arguments)
        if source.unnamed:
            raise UsageError(
                f"eval_env is {source.unnamed}; put it at the top of a file or a module, and name it"
            )
        return source


def _to_record(option: str, value: object) -> object:
    """Return the value of an option as a run records it: a function or a class, as of `net.factory`, by import path.

    Raises:
        UsageError: no import path leads to it.
    """
    if option.rpartition(".")[2] not in NAMED or not callable(value):
        return value
    name, unnamed = import_path(value)
    if unnamed:
        raise UsageError(
            f"{option}: {name} is {unnamed}, and a run records its name; put it in a file, ./net.py:make"
        )
    return name

"""Any `gymnasium.Wrapper` or function, by name, around each environment.

`gymnasium:RescaleAction:min_action=-1,max_action=1` or `./prep.py:prepare:size=8`, a function of an environment that
returns one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from rlplug_core.config.import_string import attribute_of, load_target
from rlplug_core.errors import BadConfig, PluginError, UsageError, did_you_mean, plain

if TYPE_CHECKING:
    from rlplug_core.protocols import Env
    from rlplug_core.types import GymEnv

#: The short name of `gymnasium.wrappers`, as in `gymnasium:ClipAction`.
SHORT = "gymnasium:"
#: The options that replace wrappers that learn.
INSTEAD = "--wrap normalize-obs or --net.normalize-obs scales observations, and --normalize-reward rewards"

#: The replacements for wrappers that repeat actions and ignore action masks, by the names of Gymnasium's classes.
REPEATING = {"MaxAndSkipObservation": "action-repeat", "StickyAction": "sticky-actions"}


@dataclass(frozen=True)
class SingleWrapper:
    """A wrapper of Gymnasium and its keyword arguments, as strings that can be sent to other processes."""

    name: str
    arguments: str

    @classmethod
    def parse(cls, name: str, text: str) -> SingleWrapper:
        """Return the wrapper of `gymnasium:Name`, `module:Name` or `file.py:Name`.

        Raises:
            UsageError: the wrapper does not exist, or it learns. BadConfig: an argument has no value.
        """
        wrapper = cls(name, text)
        if learns(wrapper.load()):
            raise UsageError(
                f"evaluations and loaded policies would not get what {name} learns; {INSTEAD}"
            )
        wrapper.keywords()
        return wrapper

    def load(self) -> Callable[..., GymEnv]:
        """Import the class or the function."""
        code: Any
        if self.name.startswith(SHORT):
            from gymnasium import wrappers

            class_name = self.name.removeprefix(SHORT)
            if class_name not in wrappers.__all__:
                raise UsageError(
                    f"gymnasium.wrappers has no '{class_name}'{did_you_mean(class_name, wrappers.__all__)}"
                )
            code = attribute_of(wrappers, class_name, f"'{self.name}'")
        else:
            code = load_target(self.name, "wrapper")
        if not is_single(code):
            raise UsageError(f"'{self.name}' is not a gymnasium.Wrapper and not a function")
        return code

    def keywords(self) -> dict[str, object]:
        """Return the arguments as Python literals, or as text if they are not literals."""
        return {key: _value(text) for key, text in _parse_pairs(self.arguments, self.name)}

    def __call__(self, env: GymEnv) -> GymEnv:
        from gymnasium import Env

        wrapped = self.load()(env, **self.keywords())
        if not isinstance(wrapped, Env):
            raise PluginError(
                f"wrapper '{self.name}' returned {plain(repr(wrapped), 60)}; return a gymnasium.Env"
            )
        return wrapped


def around_each(env: Env, config: SingleWrapper) -> Env:
    """Put a wrapper around each environment of a vector.

    Raises:
        UsageError: it does not consist of single environments, or they are already wrapped.
    """
    from rlplug_core.plugins.env_base import complete  # imports torch

    return complete(env).inside(config)


def is_single(code: object) -> bool:
    """Return whether `code` wraps one environment: a wrapper of Gymnasium, or a function."""
    from gymnasium import Wrapper

    return isfunction(code) or (isinstance(code, type) and issubclass(code, Wrapper))


def learns(code: object) -> bool:
    """Return whether a wrapper is one of Gymnasium's that learn while they run, or a subclass of one."""
    from gymnasium import wrappers

    kinds = wrappers.NormalizeObservation | wrappers.NormalizeReward
    return isinstance(code, type) and issubclass(code, kinds)


def replacement_of(code: object) -> str:
    """Return the wrapper of rlplug that replaces one that repeats actions; "" for any other wrapper."""
    from gymnasium import wrappers

    if not isinstance(code, type):
        return ""
    return next(
        (
            replacement
            for name, replacement in REPEATING.items()
            if issubclass(code, getattr(wrappers, name))
        ),
        "",
    )


def _parse_pairs(text: str, name: str) -> list[tuple[str, str]]:
    """Parse `key=value,…`; a part without `=` belongs to the value before it: `shape=(84,84)`."""
    pairs: list[tuple[str, str]] = []
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier():
            pairs.append((key.strip(), value.strip()))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part}")
        else:
            raise BadConfig(f"wrapper {name}: '{part}' is not an argument; write name=value")
    return pairs


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text

"""From `NAME:option=value,…` to a wrapper around an environment, a controller, a memory, a network or hooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rlplug_core.config.import_string import absolute, describe
from rlplug_core.config.options import Config
from rlplug_core.config.parse import convert, parse
from rlplug_core.config.schema import schema
from rlplug_core.errors import BadConfig, BadEnv, PluginError, RlplugError, UsageError, did_you_mean
from rlplug_core.plugins.records import Group
from rlplug_core.plugins.resolve import LOADERS, wrapper
from rlplug_core.plugins.user_envs import missing_argument

if TYPE_CHECKING:
    from rlplug_core.protocols import Controller, Env, Wrapper

#: A name, which may contain a colon (`module:Class`), and options after the colon before the first `option=`.
_WORDS = re.compile(r"(?P<name>.*?)(?::(?P<options>[A-Za-z_][\w.-]*=.*))?", re.DOTALL)


@dataclass(frozen=True)
class WrapperSpec:
    """A wrapper class and its options; `words` is the user's text with absolute paths."""

    words: str
    wrapper: Wrapper
    config: Any

    @classmethod
    def parse(cls, words: str) -> WrapperSpec:
        """Parse `frame-stack`, `frame-stack:frames=2`, `./file.py:Class:option=value`, `gymnasium:Name:key=1`.

        Raises:
            UsageError: no plugin has this name, or the text has another form. BadConfig: an option is wrong.
            PluginError: the plugin is disabled, incompatible or broken, or the class is not a wrapper.
        """
        from rlplug_core.plugins.single_wrappers import SHORT, SingleWrapper, around_each, is_single

        name, text = split(words)
        code: Any = None if name.startswith(SHORT) else wrapper(name)
        if code is None or is_single(code):
            name = name if code is None else absolute(name)
            return cls(join_words(name, text), around_each, SingleWrapper.parse(name, text))
        return cls(with_path(words), code, _config(code, text, name, "wrapper"))

    def wrap(self, env: Env, training: bool = True) -> Env:
        """Wrap `env`, or return `env` itself if the wrapper is only for training.

        Raises:
            UsageError: it does not support this environment. PluginError: its code raised, or returned no environment.
        """
        from rlplug_core.protocols import (
            SupportsEvaluation,  # imports torch and gymnasium, so only here
        )

        config = self.config
        self._check_tensors(env)
        if not training and isinstance(self.wrapper, SupportsEvaluation):
            config = self.wrapper.in_evaluation(config)
            if config is None:
                return env
        try:
            wrapped = self.wrapper(env, config)
        except RlplugError:
            raise
        except Exception as error:  # a foreign constructor may raise anything
            remedy = self._missing_argument_hint() if isinstance(error, TypeError) else ""
            raise PluginError(
                f"wrapper '{self.words}' cannot be put around {env.spec.id}: {describe(error)}; "
                f"{remedy or '--traceback shows where'}"
            ) from error
        if getattr(wrapped, "spec", None) is None:
            raise PluginError(f"wrapper '{self.words}' made no environment: it has no 'spec'")
        return wrapped

    def _check_tensors(self, env: Env) -> None:
        """Raise UsageError if the environment gives tensors, and the wrapper does not say that it takes them."""
        try:
            device = env.spec.device
        except (BadEnv, PluginError):  # the environment is only valid inside a wrapper
            return
        if device is not None and not getattr(self.wrapper, "takes_tensors", False):
            raise UsageError(
                f"{env.spec.id} gives tensors on {device}, and the wrapper '{self.words}' changes arrays; leave it "
                "out, or set takes_tensors = True in its class if it works on tensors"
            )

    def _missing_argument_hint(self) -> str:
        """Return how to write a wrapper of Gymnasium with the first argument that it lacks, or an empty string."""
        from rlplug_core.plugins.single_wrappers import SingleWrapper

        config = self.config
        if not isinstance(config, SingleWrapper):
            return ""
        code: Any = config.load()
        missing = missing_argument(partial(code, None, **config.keywords()))
        if not missing:
            return ""
        separator = "," if config.arguments else ":"
        return f"give it: --wrap {self.words}{separator}{missing}=VALUE"


#: The group of each kind of part, by its noun in messages.
_GROUPS: dict[str, Group] = {
    "controller": "controllers",
    "memory": "memories",
    "network": "networks",
    "rule": "populations",
    "logger": "loggers",
    "hook": "hooks",
}


@dataclass(frozen=True)
class PartSpec:
    """The code of a controller, a memory, a network, a rule or hooks, and its options; `words` has absolute paths."""

    words: str
    noun: str
    code: object
    config: object

    @classmethod
    def parse(cls, noun: str, words: str) -> PartSpec:
        """Parse a `controller`, a `memory`, a `network`, a `rule`, a `logger` or a `hook`: `gru`, `gru:units=128`.

        Raises:
            UsageError: no plugin has this name, or the text has another form. BadConfig: an option is wrong.
            PluginError: the plugin is disabled, incompatible or broken, or has another kind.
        """
        name, text = split(words)
        code = LOADERS[_GROUPS[noun]](name)
        return cls(with_path(words), noun, code, _config(code, text, name, noun))

    def build(self, *arguments: object) -> object:
        """Return a new part, made from these arguments, and from its options if it has a `Config`.

        A module or an object of hooks is returned unchanged.

        Raises:
            UsageError: an option is wrong. PluginError: it raised.
        """
        if self.noun in ("logger", "hook") and not isinstance(self.code, type):
            return self.code
        make = cast("Callable[..., object]", self.code)
        takes_config = self.noun == "controller" or hasattr(make, "Config")
        options = (self.config,) if takes_config else ()
        try:
            return make(*arguments, *options)
        except RlplugError:
            raise
        except Exception as error:  # a foreign constructor may raise anything
            raise PluginError(
                f"the {self.noun} '{self.words}' cannot be made: {describe(error)}; --traceback shows where"
            ) from error


def build_controller(spec: PartSpec) -> Controller:
    """Return a new controller.

    Raises:
        UsageError: an option is wrong. PluginError: it raised, or has no `reason`.
    """
    built = spec.build()
    if not isinstance(getattr(built, "reason", None), str):
        raise PluginError(
            f"controller '{spec.words}' has no 'reason'; it is '' until it stops the run"
        )
    return cast("Controller", built)


def _config(code: object, text: str, name: str, noun: str) -> object:
    """Return the options `option=value,…` as the `Config` of a plugin's class."""
    config = getattr(code, "Config", Config)
    return convert(config, values_of(config, text, name, noun), name)


def split(words: str) -> tuple[str, str]:
    """Split `NAME:option=value,…` into `NAME` and `option=value,…`; without options, the second is empty."""
    match = _WORDS.fullmatch(words)
    return (match["name"], match["options"] or "") if match else (words, "")


def join_words(name: str, options: str) -> str:
    """Return `NAME:option=value,…`; the inverse of `split`."""
    return f"{name}:{options}" if options else name


def with_path(words: str) -> str:
    """Return `./file.py:Name:option=value,…` with an absolute path; other words unchanged."""
    name, options = split(words)
    return join_words(absolute(name), options)


@contextmanager
def close_on_error(env: Env) -> Iterator[None]:
    """Close `env` if the body of the `with` raises; else leave it open."""
    with ExitStack() as stack:
        stack.callback(env.close)
        yield
        stack.pop_all()


def wrap_env(
    env: Env,
    wrappings: Iterable[WrapperSpec],
    training: bool = True,
) -> Env:
    """Return `env` inside the wrappers, the first one innermost; close it if one of them refuses it."""
    for wrapping in wrappings:
        with close_on_error(env):  # including the wrappers that are already around it
            env = wrapping.wrap(env, training)
    return env


def values_of(
    config: type[object],
    text: str,
    name: str,
    noun: str,
) -> dict[str, object]:
    """Parse `option=value,…`; a part without `=` continues the value before it: `sizes=64,64`."""
    known = {option.name: option for option in schema(config)}
    texts: dict[str, str] = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if equals:
            option = key.strip().replace("-", "_")
            texts[option] = value.strip()
        else:
            texts[option] += f",{part}"
    for key in texts:
        if key not in known:
            hint = did_you_mean(key, known)
            raise BadConfig(
                f"{noun} {name} has no option '{key}'{hint} ('rlplug info {name}' lists them)"
            )
    return {key: parse(known[key], value) for key, value in texts.items()}

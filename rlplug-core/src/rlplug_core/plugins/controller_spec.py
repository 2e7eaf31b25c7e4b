"""From `NAME:option=value,…` to a controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlplug_core.config.import_string import absolute, describe
from rlplug_core.config.options import Config
from rlplug_core.config.parse import convert
from rlplug_core.errors import PluginError, RlplugError
from rlplug_core.plugins.controllers import controller
from rlplug_core.plugins.wrapper_spec import joined, split, values_of

if TYPE_CHECKING:
    from rlplug_core.protocols import Controller


@dataclass(frozen=True)
class Controlling:
    """A controller's class and its options; `words` is what was typed, with absolute paths."""

    words: str
    make: Callable[[Any], Controller]
    config: Any

    @classmethod
    def parse(cls, words: str) -> Controlling:
        """The controller of `early-stopping`, `early-stopping:patience=3`, `./file.py:Class:option=value`.

        Raises:
            UsageError: nothing has this name, or the words are not of this form. BadConfig: an option is wrong.
            PluginError: the plugin is disabled, incompatible or broken, or the class is no controller.
        """
        name, text = split(words)
        code = controller(name)
        config = getattr(code, "Config", Config)
        return cls(
            joined(absolute(name), text),
            code,
            convert(config, values_of(config, text, name, "controller"), name),
        )

    def built(self) -> Controller:
        """A new controller.

        Raises:
            UsageError: an option is wrong. PluginError: it raised, or has no `reason`.
        """
        try:
            made = self.make(self.config)
        except RlplugError:
            raise
        except Exception as error:  # a foreign constructor may raise anything
            raise PluginError(
                f"controller '{self.words}' cannot be built: {describe(error)}; --traceback shows where"
            ) from error
        if not isinstance(getattr(made, "reason", None), str):
            raise PluginError(
                f"controller '{self.words}' has no 'reason'; it is '' until it stops the run"
            )
        return made

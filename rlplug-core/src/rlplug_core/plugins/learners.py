"""From `NAME:option=value,…` to a learner, for algorithms that are made of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlplug_core.config.import_string import is_target
from rlplug_core.config.parse import convert
from rlplug_core.config.schema import schema
from rlplug_core.errors import UsageError
from rlplug_core.plugins.env_kind import kind_of
from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.resolve import algorithm
from rlplug_core.plugins.spec import split, values_of
from rlplug_core.protocols import AnyLearner

if TYPE_CHECKING:
    from rlplug_core.context import Context
    from rlplug_core.types import Spec


def learner_of(words: str, spec: Spec, context: Context) -> AnyLearner:
    """Return the learner of `ppo`, or of `ppo:learning_rate=1e-3,net.hidden=64,64`, with its presets.

    Only installed algorithms are accepted: otherwise the record of a run could name a file to execute.

    Raises:
        UsageError: the algorithm does not exist, it does not support the runner, or it does not support the spaces.
        BadConfig: an option is wrong. PluginError: the plugin is unusable.
    """
    name, text = split(words)
    if is_target(name):
        raise UsageError(
            f"'{name}' is not an installed algorithm, and an algorithm made of others takes only these; make it a "
            "plugin"
        )
    learner: type[Any] = algorithm(name)
    if context.runner not in learner.runners:
        raise UsageError(
            f"{name} does not run under '{context.runner}', and the algorithm of this run is made of it; use --runner "
            f"{learner.runners[0]}"
        )
    names = {option.name for option in schema(learner.Config)}
    presets = {
        key: value for key, value in preset(name, spec.id, kind_of(spec)).items() if key in names
    }
    values = values_of(learner.Config, text, name, "algorithm")
    return learner(spec, convert(learner.Config, {**presets, **values}, name), context)

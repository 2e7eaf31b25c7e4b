"""Imports policies of other libraries as exports, which can be evaluated, played, shared and loaded like our own."""

from __future__ import annotations

from pathlib import Path

from rlplug_core.config.files import content
from rlplug_core.config.import_string import absolute
from rlplug_core.errors import BadFile, UsageError, plain
from rlplug_core.export.bundle import write
from rlplug_core.export.sb3 import Sb3Model, policy_of, read_sb3
from rlplug_core.export.sb3_inputs import MOST_STATISTICS, Statistics, read_statistics
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.env_source import source_of
from rlplug_core.runs.card import escape, tag

_CARD = """---
library_name: rlplug
tags:
- reinforcement-learning
- {env_tag}
- {algorithm_tag}
---
# {algorithm} on {env}

A policy that {algorithm} of Stable-Baselines3 learned on {env} in {steps:,} env steps, imported from its file.

The files hold numbers and JSON; nothing in them can run code. To load them you need only rlplug-core.
"""


def import_sb3(
    model: Path | str,
    env: str,
    out: Path | str,
    normalize: Path | str | None = None,
) -> Path:
    """Write the policy of a model that Stable-Baselines3 saved into the new directory `out`, as `Run.export` does.

    Args:
        model: the file that `model.save` wrote; its pickles are not executed.
        env: the environment that it was trained on, without wrappers that change observations or actions.
        normalize: the file that `VecNormalize.save` wrote, if the model was trained with it.

    Raises:
        UsageError: the file cannot be read, its kind of policy is not supported, or it does not fit the environment.
    """
    path = Path(model)
    saved_model = read_sb3(path)
    statistics = None if normalize is None else _read_statistics(Path(normalize))
    source = source_of(absolute(env))
    environment = source.make(1)
    try:
        space = complete(environment).action_space
        policy = policy_of(saved_model, environment.spec.obs, space, statistics)
        description = {
            "run": path.stem,
            "algorithm": saved_model.algorithm,
            "env": source.name,
            "checkpoint": "best",
            "step": saved_model.steps,
            "wrap": [],
            "wrap_each": [],
            "evaluation": {"env": source.name, "arguments": {}, "wrap": []},
        }
        return write(Path(out), policy, environment, description, _card(saved_model, env))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    finally:
        environment.close()


def _card(model: Sb3Model, env: str) -> str:
    """Return the model card of an imported policy."""
    return _CARD.format(
        algorithm=model.algorithm,
        algorithm_tag=tag(model.algorithm),
        env=escape(env),
        env_tag=tag(env),
        steps=model.steps,
    )


def _read_statistics(path: Path) -> Statistics:
    try:
        return read_statistics(content(path, MOST_STATISTICS, follow=True))
    except (OSError, BadFile, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read as a file of VecNormalize: {plain(str(error), 200)}"
        ) from error

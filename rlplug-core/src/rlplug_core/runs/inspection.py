"""Examine an environment before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlplug_core.acting.random_agent import RandomAgent
from rlplug_core.errors import UsageError
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.env_kind import kind_of
from rlplug_core.plugins.env_source import source_of
from rlplug_core.plugins.presets import provider_preset
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_core.runs.files import shell_word
from rlplug_core.runs.messages import space_text, walk
from rlplug_core.runs.watching import headless, renderer_errors
from rlplug_core.seeds import Seeds
from rlplug_core.types import Array


@dataclass(frozen=True)
class Inspection:
    """One environment inside the wrappers that its provider's preset puts around it.

    Attributes:
        observation, action: the spaces as text; `takes` is the class of the action space.
        limit: steps after which episodes are truncated; 0 if it is unknown.
        rewards: the smallest and the largest reward of `steps` random actions.
        agents: the names of the agents, if there are several; `alike` says whether all have the same spaces, `turns`
            whether they act in turn.
        inexact: why a resumed run does not get the same bits; "" if it does.
        steps_per_second: of one environment without an agent, measured here.
    """

    env: str
    observation: str
    action: str
    takes: str
    kind: str
    limit: int
    rewards: tuple[float, float]
    steps: int
    steps_per_second: float
    inexact: str
    wrap: tuple[str, ...]
    agents: tuple[str, ...]
    alike: bool = True
    turns: bool = False


def inspect(name: str, arguments: Mapping[str, object]) -> Inspection:
    """Make an environment and step it with random actions.

    Raises:
        UnknownEnv, MissingPackage, PluginError, UsageError: it cannot be made.
    """
    source = source_of(name, arguments)
    words = tuple(provider_preset(name).get("wrap", ()))
    env = wrap_env(source.make(1), map(WrapperSpec.parse, words))
    try:
        result = walk(RandomAgent(env.spec.action, Seeds(0)), env)
    finally:
        env.close()
    spec = env.spec
    return Inspection(
        env=source.name,
        observation=space_text(spec.obs),
        action=space_text(complete(env).action_space),
        takes=type(spec.action).__name__,
        kind=kind_of(spec),
        limit=spec.limit,
        rewards=(result.low, result.high),
        steps=result.steps,
        steps_per_second=result.speed,
        inexact=spec.inexact,
        wrap=words,
        agents=spec.agents,
        alike=not spec.kinds,
        turns=spec.turns,
    )


def first_frame(
    name: str,
    arguments: Mapping[str, object],
    path: Path,
) -> None:
    """Write the first frame of an episode as a PNG.

    Raises:
        UsageError: the environment has no frames, or the file's name does not end in .png.
        MissingPackage, PluginError: it cannot be drawn.
    """
    from PIL import Image

    if path.suffix.lower() != ".png":
        raise UsageError(
            f"{path} is not the name of a PNG; write --frame {shell_word(path.with_suffix('.png'))}"
        )
    frames: list[Array] = []

    def take(opens: bool, render: Callable[[], Array]) -> None:
        frames.append(render())

    with renderer_errors(name):
        headless()
        env = source_of(name, arguments).make_shown("rgb_array")
        try:
            complete(env).show(take)
            env.reset(0)
        finally:
            env.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(frames[0])).save(path)

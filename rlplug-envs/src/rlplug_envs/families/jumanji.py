"""Provider of Jumanji's environments (Bonnet et al., 2024, arXiv:2306.09884), on the device of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rlplug_core.errors import UsageError
from rlplug_core.types import MASK, Space
from rlplug_envs.families.jax_worlds import JaxStep, JaxWorlds
from rlplug_envs.tensors.jax_rows import Functions, JaxTree

#: A specification of Jumanji: its shape, type and bounds, or those of its parts.
JumanjiSpec: TypeAlias = Any


class Jumanji(JaxWorlds):
    """Makes environments of Jumanji.

    Observations are Dicts of their parts: masks stay booleans, all other numbers become float32. Jumanji's own time
    limits hold: its discount says whether an end is a termination or a truncation.
    """

    name = "jumanji"

    def names(self, package: ModuleType) -> Iterable[str]:
        return package.registered_environments()

    def functions(self, package: ModuleType, name: str) -> Functions:
        env = package.make(name)
        id = f"jumanji/{name}"
        if env.reward_spec.shape:
            raise UsageError(
                f"{id} gives a reward to each of its agents, and rlplug takes one reward per row from Jumanji; use an "
                "environment of one agent, such as jumanji/Snake-v1"
            )
        actions, to_env = jumanji_actions(env.action_spec, env.observation_spec, id)

        def start(key: JaxTree) -> tuple[JaxTree, JaxTree]:
            state, timestep = env.reset(key)
            return as_dicts(timestep.observation), state

        def move(key: JaxTree, state: JaxTree, action: JaxTree) -> JaxStep:
            state, timestep = env.step(state, to_env(action))
            last = timestep.last()
            truncated = last & (timestep.discount > 0)
            obs = as_dicts(timestep.observation)
            return obs, state, timestep.reward, last & ~truncated, truncated

        space = jumanji_observations(env.observation_spec)
        limit = int(getattr(env, "time_limit", 0) or 0)
        return Functions(start, move, space, actions, limit)


def as_dicts(obs: JaxTree, name: str = "") -> JaxTree:
    """Return an observation of named tuples and dataclasses as dictionaries of float32, and of booleans in masks."""
    numpy = import_module("jax.numpy")
    fields = obs._asdict() if hasattr(obs, "_asdict") else getattr(obs, "__dict__", None)
    if isinstance(fields, dict) and not hasattr(obs, "dtype"):  # an array of JAX has a __dict__ too
        return {key: as_dicts(part, key) for key, part in fields.items()}
    if name == MASK:
        return obs.reshape(-1).astype(bool)
    return numpy.atleast_1d(obs).astype(numpy.float32)


def jumanji_observations(spec: JumanjiSpec, name: str = "") -> Space:
    """Return the space of the observations that `as_dicts` makes."""
    if spec._specs:
        return Dict({key: jumanji_observations(part, key) for key, part in spec._specs.items()})
    if name == MASK:
        return MultiBinary(prod(spec.shape))
    shape = spec.shape or (1,)
    bounds = [
        np.broadcast_to(np.asarray(getattr(spec, bound, default), np.float32), spec.shape)
        for bound, default in (("minimum", -np.inf), ("maximum", np.inf))
    ]
    low, high = (bound.reshape(shape) for bound in bounds)
    return Box(low, high, dtype=np.float32)


def jumanji_actions(
    spec: JumanjiSpec,
    observations: JumanjiSpec,
    id: str,
) -> tuple[Space, Callable[[JaxTree], JaxTree]]:
    """Return the actions as a space of Gymnasium, and a function from them to Jumanji's.

    A mask of combinations, such as [40, 20] for 40 × 20 places and items, makes each combination one choice.

    Raises:
        UsageError: the mask has another form.
    """
    mask = observations._specs.get(MASK)
    kind = type(spec).__name__
    if kind == "DiscreteArray":
        return Discrete(int(spec.num_values)), lambda action: action.astype(spec.dtype)
    if np.issubdtype(spec.dtype, np.floating):
        low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
        return Box(np.float32(low), np.float32(high)), lambda action: action
    choices = [int(count) for count in np.ravel(np.asarray(spec.maximum) - spec.minimum + 1)]
    if mask is not None and mask.shape == tuple(choices):
        unravel = import_module("jax.numpy").unravel_index
        stack = import_module("jax.numpy").stack
        count = prod(choices)
        return Discrete(count), lambda action: stack(unravel(action, choices)).astype(spec.dtype)
    if mask is not None and prod(mask.shape) != sum(choices):
        raise UsageError(
            f"{id} has actions of {choices} choices and a mask of the shape {[*mask.shape]}, which rlplug cannot "
            "translate; use another environment"
        )
    return MultiDiscrete(choices), lambda action: action.reshape(spec.shape).astype(spec.dtype)

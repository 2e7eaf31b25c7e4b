"""Worlds with many agents: their state in every observation, and the same spaces for all agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
from gymnasium import spaces

from rlplug_core.errors import UsageError
from rlplug_core.export.agent import DetachedEnv
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_core.types import MASK, Array, Space
from rlplug_envs.agents import Agents
from rlplug_envs.games import World

#: An observation, an action or a result of a world, without types, because PettingZoo may not be installed.
Raw: TypeAlias = Any
#: The entry of an observation with the state of the world; `rl.JointState` reads it.
STATE = "state"


class WorldProxy:
    """A PettingZoo world with other observations and actions; everything else passes through."""

    def __init__(self, env: World) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Raw:
        if name == "env":  # a copy has no attributes at first
            raise AttributeError(name)
        return getattr(self.env, name)

    def observation(self, agent: str, obs: Raw) -> Raw:
        """Return the observation of an agent."""
        raise NotImplementedError

    def world_action(self, agent: str, action: Raw) -> Raw:
        """Return the world's own action of an agent."""
        return action

    def reset(self, seed: int | None = None, options: Raw = None) -> Raw:
        result = self.env.reset(seed=seed, options=options)
        # None if agents act in turn.
        return result if result is None else (self._observations(result[0]), result[1])

    def step(self, action: Raw) -> Raw:
        if not isinstance(action, Mapping):  # of the agent in turn; None after its end
            agent = self.env.agent_selection
            return self.env.step(None if action is None else self.world_action(agent, action))
        obs, *results = self.env.step(
            {agent: self.world_action(agent, choice) for agent, choice in action.items()}
        )
        return self._observations(obs), *results

    def last(self) -> Raw:
        obs, *results = self.env.last()
        return self.observation(self.env.agent_selection, obs), *results

    def _observations(self, obs: Mapping[str, Raw]) -> dict[str, Raw]:
        return {agent: self.observation(agent, agent_obs) for agent, agent_obs in obs.items()}


class Stated(WorldProxy):
    """A world with its `state()` in the observation of every agent."""

    def __init__(self, env: World) -> None:
        super().__init__(env)
        self.space = getattr(env, "state_space", None) or _state_space(env)

    def observation_space(self, agent: str) -> Space:
        space = self.env.observation_space(agent)
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        return spaces.Dict({**entries, STATE: self.space})

    def observation(self, agent: str, obs: Raw) -> Raw:
        entries = dict(obs) if isinstance(obs, Mapping) else {"obs": obs}
        return {**entries, STATE: np.array(self.env.state(), self.space.dtype)}


def _state_space(env: World) -> Space:
    """Return the space of a world's state, from one state.

    Raises:
        UsageError: the world has no state.
    """
    try:
        env.reset(seed=0)
        state = np.asarray(env.state())
    except (NotImplementedError, AttributeError) as error:
        raise UsageError(
            "world-state: this world has no state(), so leave the wrapper out; without it the state of a world is the "
            "observations of all its agents"
        ) from error
    dtype = np.uint8 if state.dtype == np.uint8 else np.float32
    low, high = (0, 255) if dtype is np.uint8 else (-np.inf, np.inf)
    return spaces.Box(low, high, state.shape, dtype)


class Padded(WorldProxy):
    """A world with vectors of one length and actions of one space for all agents.

    Shorter observations end with zeros. For Discrete actions, a mask forbids the choices that an agent does not have;
    for Box actions, numbers that it does not have are ignored.
    """

    def __init__(self, env: World) -> None:
        super().__init__(env)
        agents = list(env.possible_agents)
        obs_spaces = [env.observation_space(agent) for agent in agents]
        actions = [env.action_space(agent) for agent in agents]
        _check_spaces(obs_spaces, actions)
        size = max(space.shape[0] for space in obs_spaces)
        obs = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.size = size
        if isinstance(actions[0], spaces.Discrete):
            choices = max(int(space.n) for space in actions)
            self.masks = {
                agent: (np.arange(choices) < space.n).astype(np.int8)
                for agent, space in zip(agents, actions, strict=True)
            }
            self.space: Space = spaces.Dict({"obs": obs, MASK: spaces.MultiBinary(choices)})
            self.actions: Space = spaces.Discrete(choices)
        else:
            self.masks = {}
            self.space = obs
            longest = max(actions, key=lambda space: space.shape[0])
            self.actions = spaces.Box(-1.0, 1.0, longest.shape, np.float32)

    def observation_space(self, agent: str) -> Space:
        return self.space

    def action_space(self, agent: str) -> Space:
        return self.actions

    def observation(self, agent: str, obs: Raw) -> Raw:
        vector = np.zeros(self.size, np.float32)
        vector[: len(obs)] = obs
        return {"obs": vector, MASK: self.masks[agent]} if self.masks else vector

    def world_action(self, agent: str, action: Raw) -> Raw:
        space = self.env.action_space(agent)
        if isinstance(space, spaces.Discrete):
            return action + space.start
        part = np.asarray(action, np.float32)[: space.shape[0]]
        scaled: Array = (space.low + (part + 1) / 2 * (space.high - space.low)).astype(space.dtype)
        return scaled


def _check_spaces(obs_spaces: list[Space], actions: list[Space]) -> None:
    """Raise UsageError if observations are not vectors, or actions neither all Discrete nor all bounded vectors."""
    vectors = all(isinstance(space, spaces.Box) and len(space.shape) == 1 for space in obs_spaces)
    discrete = all(isinstance(space, spaces.Discrete) for space in actions)
    boxes = all(
        isinstance(space, spaces.Box) and len(space.shape) == 1 and space.is_bounded()
        for space in actions
    )
    if not vectors or not (discrete or boxes):
        raise UsageError(
            "pad-agents needs vectors as observations of all agents, and actions that are all Discrete or all bounded "
            f"vectors, and these are {obs_spaces[0]} and {actions[0]}; use independent, which takes agents with any "
            "spaces"
        )


class WorldWrapper(Transform):
    """A wrapper around each world, below all wrappers of vectors; policies get observations of the wrapped world.

    An exported policy has no environment, and its spaces are those of the wrapped world.
    """

    id: ClassVar[str]
    wrap: Callable[[World], World]

    def __init__(self, env: Env, config: object = None) -> None:
        if isinstance(env, DetachedEnv):
            super().__init__(env)
            return
        worlds = env.env if isinstance(env, WorldWrapper) else env
        if not isinstance(worlds, Agents):
            raise UsageError(
                f"{self.id} goes around worlds with many agents, and {env.spec.id} is not one, or has another wrapper "
                f"around it; put {self.id} first"
            )
        super().__init__(worlds.inside_worlds(type(self).wrap))


class WorldState(WorldWrapper):
    """The observation of every agent gets an entry `state`: the world's `state()`, for critics that see everything."""

    id = "world-state"
    wrap = Stated


class PadAgents(WorldWrapper):
    """All agents get the same spaces: shorter observations end with zeros, choices that an agent lacks are masked."""

    id = "pad-agents"
    wrap = Padded

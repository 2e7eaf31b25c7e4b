"""The state of a world for a critic: the observations of all agents, and the number of the agent that it evaluates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

import rlplug_core as rl
from rlplug_core.nets.keys import select, select_space
from rlplug_core.nets.number_scale import number_scale
from rlplug_core.nets.one_hot import Counted, OneHot
from rlplug_core.types import Space


def state_space(obs: Space, agents: int) -> Space:
    """Return the space of `world_state` for agents with these observations."""
    return spaces.Box(-np.inf, np.inf, (agents * (_size(obs) + 1),), np.float32)


def world_state(
    rollout: rl.Rollout,
    obs: Space,
    agents: int,
    keys: Sequence[str] = (),
) -> tuple[rl.Array, rl.Array]:
    """Return the states before and after the action of each row, [T, N, S] both.

    A state consists of the observations of all agents of the row's world and the one-hot number of the row's agent. It
    has zeros for absent agents. After an action, agents that terminated are absent. Agents that were truncated are
    absent, too, if the row's episode continues. If it ends at the same step, they are present with their final
    observations, which the rollout keeps in `truncations`, because a new episode may have started since.

    Discrete observations become one-hot vectors, and uint8 images are scaled to between 0 and 1, as for a policy. With
    `keys` a state contains only these keys of a Dict.
    """
    obs = select_space(obs, keys)
    flat_obs = _flat(select(rollout.obs, keys), obs, rollout.reward.ndim)
    next_obs = flat_obs[1:].copy()
    truncations = rollout.truncations
    if truncations.count:
        rows = truncations.index[: truncations.count]
        final = _flat(select(truncations.obs, keys), obs, 1)
        next_obs.reshape(-1, next_obs.shape[-1])[rows] = final[: truncations.count]
    present = rollout.weight > 0
    not_terminated = present & ~rollout.terminated
    continues = not_terminated & ~rollout.truncated
    states = _states(flat_obs[:-1], present, agents)
    successors = np.where(
        continues[..., None],
        _states(next_obs, continues, agents),
        _states(next_obs, not_terminated, agents),
    )
    return states, successors


def _states(obs: rl.Array, present: rl.Array, agents: int) -> rl.Array:
    """Return a state [T, N, S] for every row from the observations [T, N, F] of agents that are `present` [T, N]."""
    steps, num_envs, size = obs.shape
    worlds = num_envs // agents
    obs = np.where(present[..., None], obs, np.float32(0))
    of_world = np.repeat(obs.reshape(steps, worlds, 1, agents * size), agents, 2)
    number = np.broadcast_to(np.eye(agents, dtype=np.float32), (steps, worlds, agents, agents))
    return np.concatenate([of_world, number], 3).reshape(steps, num_envs, -1)


def _flat(obs: rl.Obs, space: Space, leading: int) -> rl.Array:
    """Return observations as float32 vectors; `leading` is the number of dimensions before those of the space."""
    if isinstance(obs, dict):
        assert isinstance(space, spaces.Dict)
        return np.concatenate(
            [_flat(obs[name], part, leading) for name, part in space.spaces.items()], -1
        )
    shape = obs.shape[:leading]
    if isinstance(space, Counted):
        vectors = OneHot(space).on_host(obs.reshape(-1, *(space.shape or ())))
        return vectors.reshape(*shape, -1)
    return np.asarray(obs, np.float32).reshape(*shape, -1) * np.float32(number_scale(space))


def _size(space: Space) -> int:
    if isinstance(space, spaces.Dict):
        return sum(map(_size, space.spaces.values()))
    if isinstance(space, Counted):
        return OneHot(space).features
    return int(np.prod(space.shape or ()))

"""The state of a world: what all of its agents see, side by side, and whose turn to be judged it is."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

import rlplug_core as rl
from rlplug_core.types import Space


def state_space(obs: Space, agents: int) -> Space:
    """The space of `world_state` for agents with observations of a space."""
    return spaces.Box(-np.inf, np.inf, (agents * (_size(obs) + 1),), np.float32)


def world_state(rollout: rl.Rollout, agents: int) -> tuple[rl.Array, rl.Array]:
    """The state in which each row acted, and the true successor of it, [T, N, S] both.

    It is what all agents of the row's world saw, and a one for the row's agent among zeros for the others. The buffer
    kept the successors of all agents of a world in which one was cut: the others may have ended, and begun anew since.
    """
    obs = _flat(rollout.obs, rollout.reward.ndim)
    after = obs[1:].copy()
    cuts = rollout.cuts
    if cuts.count:
        places = cuts.index[: cuts.count]
        after.reshape(-1, after.shape[-1])[places] = _flat(cuts.obs, 1)[: cuts.count]
    return _shared(obs[:-1], agents), _shared(after, agents)


def _shared(obs: rl.Array, agents: int) -> rl.Array:
    steps, num_envs, size = obs.shape
    worlds = num_envs // agents
    every = np.repeat(obs.reshape(steps, worlds, 1, agents * size), agents, 2)
    which = np.broadcast_to(np.eye(agents, dtype=np.float32), (steps, worlds, agents, agents))
    return np.concatenate([every, which], 3).reshape(steps, num_envs, -1)


def _flat(obs: rl.Obs, leading: int) -> rl.Array:
    """Observations as vectors of float32; `leading` is the number of dimensions before theirs."""
    if isinstance(obs, dict):
        return np.concatenate([_flat(part, leading) for part in obs.values()], -1)
    return np.asarray(obs, np.float32).reshape(*obs.shape[:leading], -1)


def _size(space: Space) -> int:
    if isinstance(space, spaces.Dict):
        return sum(map(_size, space.spaces.values()))
    return int(np.prod(space.shape or ()))

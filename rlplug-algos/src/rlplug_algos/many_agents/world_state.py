"""The state of a world: what all of its agents see, side by side, and whose turn to be judged it is."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

import rlplug_core as rl
from rlplug_core.nets.encoders import pixel_scale
from rlplug_core.nets.one_hot import Counted, OneHot
from rlplug_core.types import Space


def state_space(obs: Space, agents: int) -> Space:
    """The space of `world_state` for agents with observations of a space."""
    return spaces.Box(-np.inf, np.inf, (agents * (_size(obs) + 1),), np.float32)


def world_state(rollout: rl.Rollout, obs: Space, agents: int) -> tuple[rl.Array, rl.Array]:
    """The state in which each row acted, and the true successor of it, [T, N, S] both.

    It is what all agents of the row's world saw, zeros where one is gone, and a one for the row's agent among zeros for
    the others. The buffer kept the successors of all agents of a world in which one was cut: the others may have ended,
    and begun anew since. Numbers of a Discrete space `obs` are one-hot vectors, and images of uint8 are from 0 to 1, as
    for a policy.
    """
    seen = _flat(rollout.obs, obs, rollout.reward.ndim)
    after = seen[1:].copy()
    cuts = rollout.cuts
    if cuts.count:
        places = cuts.index[: cuts.count]
        after.reshape(-1, after.shape[-1])[places] = _flat(cuts.obs, obs, 1)[: cuts.count]
    acts = rollout.weight > 0
    return _shared(seen[:-1], acts, agents), _shared(after, acts & ~rollout.terminated, agents)


def _shared(obs: rl.Array, there: rl.Array, agents: int) -> rl.Array:
    """Observations [T, N, F] of those that are `there` [T, N], of all agents for each, and which one it is."""
    steps, num_envs, size = obs.shape
    worlds = num_envs // agents
    obs = np.where(there[..., None], obs, np.float32(0))
    every = np.repeat(obs.reshape(steps, worlds, 1, agents * size), agents, 2)
    which = np.broadcast_to(np.eye(agents, dtype=np.float32), (steps, worlds, agents, agents))
    return np.concatenate([every, which], 3).reshape(steps, num_envs, -1)


def _flat(obs: rl.Obs, space: Space, leading: int) -> rl.Array:
    """Observations as vectors of float32; `leading` is the number of dimensions before theirs."""
    if isinstance(obs, dict):
        assert isinstance(space, spaces.Dict)
        return np.concatenate(
            [_flat(obs[name], part, leading) for name, part in space.spaces.items()], -1
        )
    shape = obs.shape[:leading]
    if isinstance(space, Counted):
        vectors = OneHot(space).in_numpy(obs.reshape(-1, *(space.shape or ())))
        return vectors.reshape(*shape, -1)
    return np.asarray(obs, np.float32).reshape(*shape, -1) * np.float32(pixel_scale(space))


def _size(space: Space) -> int:
    if isinstance(space, spaces.Dict):
        return sum(map(_size, space.spaces.values()))
    if isinstance(space, Counted):
        return OneHot(space).features
    return int(np.prod(space.shape or ()))

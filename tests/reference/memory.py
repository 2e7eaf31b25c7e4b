"""What a memory holds, one row and one step at a time, and an environment that is nothing but beginnings and ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlplug_core.batches import Rollout
from rlplug_core.nets.memory_networks import RecurrentPolicyAndCritic
from rlplug_core.nets.recurrent import Cell, Remembered
from rlplug_core.testing.envs import Vector
from rlplug_core.types import Array, Timestep, tree_map


def one_step(memory: Cell, seen: Tensor, before: Remembered) -> Remembered:
    """What one row remembers, [units] each: the equations of Cho et al. (2014) and of Gers et al. (2000), by gates."""
    cell = memory.cell
    gates = 3 if memory.parts == ("h",) else 4
    inputs = (cell.weight_ih @ seen + cell.bias_ih).chunk(gates)
    recurrent = (cell.weight_hh @ before["h"] + cell.bias_hh).chunk(gates)
    if gates == 3:
        reset, update = ((inputs[gate] + recurrent[gate]).sigmoid() for gate in (0, 1))
        new = (inputs[2] + reset * recurrent[2]).tanh()
        return {"h": (1 - update) * new + update * before["h"]}
    enter, forget, candidate, leave = (inputs[gate] + recurrent[gate] for gate in range(4))
    held = forget.sigmoid() * before["c"] + enter.sigmoid() * candidate.tanh()
    return {"h": leave.sigmoid() * held.tanh(), "c": held}


def slowly(memory: Cell, features: Tensor, is_first: Any, valid: Any, before: Remembered) -> dict[str, list[list[Any]]]:
    """`parts[name][step][row]` of features [T, N, F]: nothing but loops."""
    steps, num_envs = features.shape[:2]
    found: dict[str, list[list[Any]]] = {part: [[None] * num_envs for _ in range(steps)] for part in memory.parts}
    for row in range(num_envs):
        now = {part: before[part][row] for part in memory.parts}
        for step in range(steps):
            if is_first[step, row]:
                now = {part: torch.zeros_like(now[part]) for part in memory.parts}
            if valid[step, row]:
                now = one_step(memory, features[step, row], now)
            for part in memory.parts:
                found[part][step][row] = now[part]
    return found


def seen_by(rollout: Rollout, made: RecurrentPolicyAndCritic) -> tuple[Array, Array]:
    """V of every observation and of every true successor [T, N], each by what is remembered there."""
    steps, num_envs = rollout.reward.shape
    cut = {int(rollout.truncations.index[k]): rollout.truncations.obs[k] for k in range(rollout.truncations.count)}
    value, successor = np.zeros((steps, num_envs)), np.zeros((steps, num_envs))
    with torch.no_grad():
        features = made.policy.encoder(torch.from_numpy(rollout.obs.reshape(-1, 3))).unflatten(0, (steps + 1, num_envs))
        before = tree_map(torch.from_numpy, rollout.recurrent_state)
        remembered = slowly(made.policy.memory, features[:-1], rollout.is_first, rollout.weight > 0, before)
        for step in range(steps):
            for row in range(num_envs):
                after = {part: remembered[part][step][row] for part in made.policy.memory.parts}
                value[step, row] = made.critic(after)
                following = torch.from_numpy(cut.get(step * num_envs + row, rollout.obs[step + 1, row]))
                next_after = one_step(made.policy.memory, made.policy.encoder(following.unsqueeze(0))[0], after)
                successor[step, row] = made.critic(next_after)
    return value, successor


class Random(Vector):
    """What is seen means nothing; episodes of any length end both ways, and rows are absent here and there.

    An absent row shows `filling`, whether it opens an episode or stands in the middle of one.
    """

    obs = spaces.Box(-1, 1, (3,), np.float32)
    action = spaces.Discrete(4)

    def __init__(self, num_envs: int, absent: float = 0.3, filling: float = 0.0) -> None:
        super().__init__(num_envs)
        self.absent, self.filling = absent, filling
        self.gone = np.zeros(num_envs, bool)

    def observe(self) -> Array:
        return self.generator.uniform(-1, 1, (self.num_envs, 3)).astype(np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        kind = np.where(self.gone, 9, self.generator.integers(0, 8, self.num_envs))
        return self.generator.normal(size=self.num_envs), kind == 0, kind == 1

    def step(self, action: Array) -> Timestep:
        now = super().step(action)
        now.valid, now.count = ~self.gone, int((~self.gone).sum())
        self.gone = self.generator.random(self.num_envs) < self.absent
        now.obs = np.where(self.gone[:, None], np.float32(self.filling), now.obs)
        return now

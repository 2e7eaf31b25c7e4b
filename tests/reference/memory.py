"""Recurrent states by loops over rows and steps, and an environment with random starts and ends of episodes."""

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


def one_step(memory: Cell, features: Tensor, before: Remembered) -> Remembered:
    """The next state of one row, [units] each, by the equations of Cho et al. (2014) and of Gers et al. (2000)."""
    cell = memory.cell
    gates = 3 if memory.parts == ("h",) else 4
    inputs = (cell.weight_ih @ features + cell.bias_ih).chunk(gates)
    recurrent = (cell.weight_hh @ before["h"] + cell.bias_hh).chunk(gates)
    if gates == 3:
        reset, update = ((inputs[gate] + recurrent[gate]).sigmoid() for gate in (0, 1))
        new = (inputs[2] + reset * recurrent[2]).tanh()
        return {"h": (1 - update) * new + update * before["h"]}
    enter, forget, candidate, leave = (inputs[gate] + recurrent[gate] for gate in range(4))
    cell_state = forget.sigmoid() * before["c"] + enter.sigmoid() * candidate.tanh()
    return {"h": leave.sigmoid() * cell_state.tanh(), "c": cell_state}


def unroll_by_loops(
    memory: Cell, features: Tensor, is_first: Any, valid: Any, before: Remembered
) -> dict[str, list[list[Any]]]:
    """The states `parts[name][step][row]` of features [T, N, F], by loops."""
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


def values_by_loops(rollout: Rollout, networks: RecurrentPolicyAndCritic) -> tuple[Array, Array]:
    """V of each observation and of each true successor [T, N], with their recurrent states."""
    steps, num_envs = rollout.reward.shape
    cut = {int(rollout.truncations.index[k]): rollout.truncations.obs[k] for k in range(rollout.truncations.count)}
    value = np.zeros((steps, num_envs))
    successor = np.zeros((steps, num_envs))
    with torch.no_grad():
        features = networks.policy.encoder(torch.from_numpy(rollout.obs.reshape(-1, 3))).unflatten(
            0, (steps + 1, num_envs)
        )
        before = tree_map(torch.from_numpy, rollout.recurrent_state)
        states = unroll_by_loops(networks.policy.memory, features[:-1], rollout.is_first, rollout.weight > 0, before)
        for step in range(steps):
            for row in range(num_envs):
                after = {part: states[part][step][row] for part in networks.policy.memory.parts}
                value[step, row] = networks.critic(after)
                following = torch.from_numpy(cut.get(step * num_envs + row, rollout.obs[step + 1, row]))
                next_after = one_step(networks.policy.memory, networks.policy.encoder(following.unsqueeze(0))[0], after)
                successor[step, row] = networks.critic(next_after)
    return value, successor


class Random(Vector):
    """Random observations; episodes terminate or are truncated at random, and random rows are absent.

    An absent row has the observation `filling`, at the start or in the middle of an episode.
    """

    obs = spaces.Box(-1, 1, (3,), np.float32)
    action = spaces.Discrete(4)

    def __init__(self, num_envs: int, absent: float = 0.3, filling: float = 0.0) -> None:
        super().__init__(num_envs)
        self.absent = absent
        self.filling = filling
        self.is_absent = np.zeros(num_envs, bool)

    def observe(self) -> Array:
        return self.generator.uniform(-1, 1, (self.num_envs, 3)).astype(np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        kind = np.where(self.is_absent, 9, self.generator.integers(0, 8, self.num_envs))
        return self.generator.normal(size=self.num_envs), kind == 0, kind == 1

    def step(self, action: Array) -> Timestep:
        now = super().step(action)
        now.valid = ~self.is_absent
        now.count = int((~self.is_absent).sum())
        self.is_absent = self.generator.random(self.num_envs) < self.absent
        now.obs = np.where(self.is_absent[:, None], np.float32(self.filling), now.obs)
        return now

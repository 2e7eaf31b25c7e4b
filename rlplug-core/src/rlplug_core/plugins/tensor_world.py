"""`TensorWorld`: the base of worlds that are written in torch, N rows at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from rlplug_core.arrays import DeviceGenerator, to_device
from rlplug_core.types import Array, Obs, Space, State, tree_map

#: The state of N rows: tensors [N, ...] by name.
Rows: TypeAlias = dict[str, Tensor]
SAME_STEP = {"autoreset_mode": AutoresetMode.SAME_STEP}


class TensorWorld:
    """Steps N rows together, resets finished ones in the same step, and saves all of them.

        class Walk(TensorWorld):
            single_observation_space = Box(-10, 10, (1,))
            single_action_space = Discrete(2)
            time_limit = 100

            def start(self, draw: DeviceGenerator) -> Rows:
                return {"place": draw.random((self.num_envs, 1))}

            def advance(self, rows: Rows, action: Tensor, draw: DeviceGenerator) -> Moved:
                place = (rows["place"] + (2 * action - 1).unsqueeze(1)).clamp(-10, 10)
                return {"place": place}, -place.squeeze(1).abs(), place.squeeze(1).abs() == 10

            def observe(self, rows: Rows) -> Tensor:
                return rows["place"]

    It is a `protocols.TensorEnv`. The three methods return new tensors and read nothing back from the device: no
    `.item()`, no `if` on a tensor. Random numbers come from `draw`; its state is saved.

    Attributes:
        time_limit: the steps after which an episode is truncated; 0 for none.
        rows: the state of all rows.
        age: [N] steps of each row's episode.
    """

    metadata: Mapping[str, object] = SAME_STEP
    single_observation_space: Space
    single_action_space: Space
    time_limit: int = 0

    def __init__(
        self,
        num_envs: int,
        device: str | torch.device = "cpu",
    ) -> None:
        self.num_envs = num_envs
        self.device = torch.device(device)

    def start(self, draw: DeviceGenerator) -> Rows:
        """Return the first states of new episodes in all N rows."""
        raise NotImplementedError

    def advance(
        self,
        rows: Rows,
        action: Tensor,
        draw: DeviceGenerator,
    ) -> Moved:
        """Return the next states, the rewards [N] float32, and which rows have terminated [N]."""
        raise NotImplementedError

    def observe(self, rows: Rows) -> Obs:
        """Return observations [N, ...] of states."""
        raise NotImplementedError

    def render(self, row: int = 0) -> Array:
        """Return a picture [H, W, 3] uint8 of one row."""
        raise NotImplementedError

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, or earlier if `time_limit` says so."""
        self.time_limit = min(self.time_limit or steps, steps)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: State | None = None,
    ) -> tuple[Obs, State]:
        """Start every row."""
        if seed is not None or not hasattr(self, "draw"):
            self.draw = DeviceGenerator(seed or 0, self.device)
        self.rows = self.start(self.draw)
        self.age = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        return self.observe(self.rows), {}

    def step(
        self,
        action: Tensor,
    ) -> tuple[Obs, Tensor, Tensor, Tensor, State]:
        """Step every row; reset the finished ones."""
        rows, reward, terminated = self.advance(self.rows, action, self.draw)
        final_obs = self.observe(rows)
        age = self.age + 1
        ended = terminated
        truncated = torch.zeros_like(terminated)
        if self.time_limit:
            truncated = (age >= self.time_limit) & ~terminated
            ended = terminated | truncated
        self.age = age.masked_fill_(ended, 0)
        self.rows = select_rows(ended, self.start(self.draw), rows)
        obs = self.observe(self.rows)
        return obs, reward, terminated, truncated, {"final_obs": final_obs}

    def state_dict(self) -> State:
        return {
            "rows": tree_map(torch.clone, self.rows),
            "age": self.age.clone(),
            "draw": self.draw.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state, after a reset."""
        self.rows = to_device(state["rows"], self.device)
        self.age = to_device(state["age"], self.device)
        self.draw.load_state_dict(state["draw"])

    def close(self) -> None:
        """Do nothing; there is nothing to close."""


#: The next states, the rewards and which rows have terminated.
Moved: TypeAlias = tuple[Rows, Tensor, Tensor]


def select_rows(mask: Tensor, inside: Obs, outside: Obs) -> Obs:
    """Return `inside` in the rows of `mask` [N], and `outside` in the others: tensors [N, ...] or dictionaries."""

    def choose(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(mask.view(-1, *[1] * (a.ndim - 1)), a, b)

    return tree_map(choose, inside, outside)

"""`LearnerDataset`: the data set of a run as its learner gets it, with random batches that resume exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from rlplug_core.batches import Transitions, to_tensors
from rlplug_core.types import Array, Obs, State, tree_map


@dataclass
class LearnerDataset:
    """M recorded transitions, in the spaces that agents see: `spec.obs` and `spec.action`.

    Attributes:
        sha256: the hash of the data set.
        obs, action, reward, next_obs: [M, ...] arrays in the order of time; do not change them.
        terminated, truncated: [M] bool, whether the transition ended its episode by termination, or by truncation.
        generator: draws the batches.
        device: the device of the batches.
    """

    sha256: str
    obs: Obs = field(repr=False)
    action: Array = field(repr=False)
    reward: Array = field(repr=False)
    next_obs: Obs = field(repr=False)
    terminated: Array = field(repr=False)
    truncated: Array = field(repr=False)
    generator: np.random.Generator
    device: torch.device

    def __len__(self) -> int:
        return len(self.reward)

    def batch(self, size: int, gamma: float = 1.0) -> Transitions:
        """Draw `size` transitions at random, each independently.

        Args:
            size: the number of transitions B.
            gamma: the discount per step, for `discount`.

        Returns:
            Transitions [B] on the device, with weight 1 and their row numbers as `index`.
        """
        return self.take(self.generator.integers(0, len(self), size), gamma)

    def batches(self, size: int, gamma: float = 1.0) -> Iterator[Transitions]:
        """Yield all transitions in random order, `size` at a time, for one update; the last batch may be smaller.

        The order is drawn at the call. Checkpoints do not contain the place in a pass: use all batches in one `learn`.
        """
        order = self.generator.permutation(len(self))
        return (self.take(order[i : i + size], gamma) for i in range(0, len(order), size))

    def take(self, rows: Array, gamma: float = 1.0) -> Transitions:
        """Return the transitions with these row numbers [B]."""
        columns = {
            "weight": np.ones(len(rows), np.float32),
            "obs": tree_map(lambda array: array[rows], self.obs),
            "action": self.action[rows],
            "reward": self.reward[rows],
            "discount": np.where(self.terminated[rows], 0, gamma).astype(np.float32),
            "next_obs": tree_map(lambda array: array[rows], self.next_obs),
            "index": rows,
        }
        return Transitions(share=None, extras={}, **to_tensors(columns, self.device))

    def state_dict(self) -> State:
        """Return the hash and the state of the generator, without the data."""
        return {"sha256": self.sha256, "generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        if state["sha256"] != self.sha256:
            raise ValueError(
                f"the state belongs to a data set of SHA-256 {state['sha256']}, not {self.sha256}"
            )
        self.generator.bit_generator.state = state["generator"]

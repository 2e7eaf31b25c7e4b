"""A random environment, and a GRU without a fast form, one row and one step at a time."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlplug_core.nets.recurrent import GRU, Remembered
from tests.reference.memory import Random


class Steered(Random):
    """`Random` with Box actions, which change nothing."""

    action = spaces.Box(-1, 1, (2,), np.float32)


class Slow(GRU):
    """A GRU that loops over rows and steps of sequences."""

    def unroll(self, features: Tensor, is_first: Tensor, before: Remembered, valid: Tensor | None = None) -> Remembered:
        rows = len(before["h"])
        steps = len(features) // rows
        states: list[list[Tensor]] = [[] for _ in range(steps)]
        for row in range(rows):
            now = before["h"][row]
            for step in range(steps):
                at = step * rows + row
                if is_first[at]:
                    now = torch.zeros_like(now)
                if valid is None or valid[at]:
                    now = self.step(features[at : at + 1], {"h": now.unsqueeze(0)})["h"][0]
                states[step].append(now)
        return {"h": torch.stack([torch.stack(each) for each in states]).flatten(0, 1)}

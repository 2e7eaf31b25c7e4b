"""Past versions of a player, their ratings, and who of them plays now."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

import rlplug_core as rl

#: Where ratings begin, and how far one result moves them at most.
FIRST_RATING = 1200.0
LARGEST_CHANGE = 16.0


class League:
    """The last `window` snapshots of a player's weights, each with the rating it had.

    Attributes:
        rating: the player's present one.
        opponent: the place of the snapshot that plays against it now; None where it plays against itself.
        open: whether opponents play: only where results are told, as in training, and not in evaluations.
    """

    def __init__(self, window: int, past: float, generator: np.random.Generator) -> None:
        self.window = window
        self.past = past
        self.generator = generator
        self.snapshots: list[dict[str, Any]] = []
        self.rating = FIRST_RATING
        self.opponent: int | None = None
        self.open = False
        self.next_snapshot = self.next_choice = 0

    def keep(self, weights: rl.State, steps: int, every: int) -> None:
        """Keep a copy of the weights, if that is due; the oldest one gives way."""
        if steps < self.next_snapshot:
            return
        self.next_snapshot = steps + every
        copied = rl.tree_map(lambda tensor: tensor.detach().cpu().clone(), dict(weights))
        self.snapshots.append({"weights": copied, "rating": self.rating})
        if len(self.snapshots) > self.window:
            del self.snapshots[0]
            self.opponent = None if not self.opponent else self.opponent - 1

    def choose(self, weights: rl.State, steps: int, every: int) -> None:
        """Choose the next opponent, if that is due, and put its weights into those of the opponent's network."""
        if steps < self.next_choice:
            return
        self.next_choice = steps + every
        past = self.generator.random() < self.past
        self.opponent = int(self.generator.integers(len(self.snapshots))) if past else None
        self.seat(weights)

    def seat(self, weights: rl.State) -> None:
        """Put the weights of the present opponent into those of its network."""
        if self.opponent is not None:
            with torch.no_grad():
                rl.tree_map(
                    lambda own, kept: own.copy_(kept),
                    dict(weights),
                    self.snapshots[self.opponent]["weights"],
                )

    @property
    def facing(self) -> float:
        """Return the rating of the present opponent, NaN where it is the player itself."""
        return math.nan if self.opponent is None else float(self.snapshots[self.opponent]["rating"])

    def played(self, score: float, theirs: float) -> None:
        """Move the rating by one result: 1 is a win, 0.5 a draw (Elo, 1978); against itself, NaN, nothing moves."""
        if not math.isnan(theirs):
            ahead = theirs - self.rating
            self.rating += LARGEST_CHANGE * (float(score) - 1 / (1 + 10 ** (ahead / 400)))

    def state_dict(self) -> rl.State:
        return {
            "snapshots": list(self.snapshots),
            "rating": self.rating,
            "opponent": self.opponent,
            "next_snapshot": self.next_snapshot,
            "next_choice": self.next_choice,
            "generator": self.generator.bit_generator.state,
        }

    def load_state_dict(self, state: rl.State) -> None:
        self.snapshots = list(state["snapshots"])
        self.rating = state["rating"]
        self.opponent = state["opponent"]
        self.next_snapshot = state["next_snapshot"]
        self.next_choice = state["next_choice"]
        self.generator.bit_generator.state = state["generator"]

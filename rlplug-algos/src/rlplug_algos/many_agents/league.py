"""Past versions of a player, their ratings, and the current opponent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

import rlplug_core as rl

#: The initial rating, and the largest change after one game.
FIRST_RATING = 1200.0
LARGEST_CHANGE = 16.0


class League:
    """The last `window` snapshots of a player's weights, each with its rating at that time.

    Args:
        window: the largest number of snapshots.
        past: the probability that a snapshot is the opponent instead of the player itself.
        generator: for the choice of opponents.

    Attributes:
        rating: the player's current rating.
        opponent: the index of the opponent's snapshot; None if the player plays against itself.
        open: whether opponents play; True in training, False in evaluations.
    """

    def __init__(
        self,
        window: int,
        past: float,
        generator: np.random.Generator,
    ) -> None:
        self.window = window
        self.past = past
        self.generator = generator
        self.snapshots: list[dict[str, Any]] = []
        self.rating = FIRST_RATING
        self.opponent: int | None = None
        self.open = False
        self.next_snapshot = self.next_choice = 0

    def keep(self, weights: rl.State, steps: int, interval: int) -> None:
        """Keep a copy of the weights every `interval` steps; if there are more than `window`, drop the oldest."""
        if steps < self.next_snapshot:
            return
        self.next_snapshot = steps + interval
        copied = rl.tree_map(lambda tensor: tensor.detach().cpu().clone(), dict(weights))
        self.snapshots.append({"weights": copied, "rating": self.rating})
        if len(self.snapshots) > self.window:
            del self.snapshots[0]
            # If the oldest was the opponent, the player plays against itself until the next choice.
            self.opponent = None if not self.opponent else self.opponent - 1

    def choose(self, weights: rl.State, steps: int, interval: int) -> None:
        """Choose an opponent every `interval` steps, and copy its weights into `weights`, those of its network."""
        if steps < self.next_choice:
            return
        self.next_choice = steps + interval
        is_past = self.generator.random() < self.past
        self.opponent = int(self.generator.integers(len(self.snapshots))) if is_past else None
        self.copy_opponent(weights)

    def copy_opponent(self, weights: rl.State) -> None:
        """Copy the weights of the current opponent into `weights`, those of the opponent's network."""
        if self.opponent is not None:
            with torch.no_grad():
                rl.tree_map(
                    lambda weight, saved: weight.copy_(saved),
                    dict(weights),
                    self.snapshots[self.opponent]["weights"],
                )

    @property
    def opponent_rating(self) -> float:
        """Return the rating of the current opponent, NaN if it is the player itself."""
        return math.nan if self.opponent is None else float(self.snapshots[self.opponent]["rating"])

    def record_result(self, score: float, opponent_rating: float) -> None:
        """Update the rating with the result of one game (Elo, 1978).

        Args:
            score: 1 for a win, 0.5 for a draw, 0 for a loss.
            opponent_rating: the opponent's rating; if it is NaN, nothing changes.
        """
        if not math.isnan(opponent_rating):
            difference = opponent_rating - self.rating
            self.rating += LARGEST_CHANGE * (float(score) - 1 / (1 + 10 ** (difference / 400)))

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

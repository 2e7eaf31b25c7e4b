"""Evaluation: greedy episodes on an environment of their own; touches neither training state nor its random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlplug_core.clock import Clock
from rlplug_core.protocols import Agent, Env
from rlplug_core.seeds import untouched

#: Steps after which an episode that does not end is counted as it stands: Atari's thirty minutes at four frames a step.
LONGEST = 27_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Undiscounted returns and lengths of the episodes, one per row."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    @property
    def minimum(self) -> float:
        return min(self.returns)

    @property
    def maximum(self) -> float:
        return max(self.returns)

    @property
    def length_mean(self) -> float:
        return float(np.mean(self.lengths))


def evaluate(agent: Agent, env: Env, seed: int, clock: Clock) -> Evaluation:
    """Play the first episode of every row of `env` greedily, so that short episodes count no more than long ones."""
    with untouched():
        rows = env.spec.rows
        carry = agent.initial(rows)
        now = env.reset(seed)
        totals: dict[int, tuple[float, int]] = {}
        running = np.zeros(rows)
        for step in range(LONGEST):  # noqa: B007  # how far it came is read below
            act = agent.act(now.obs, now.first, carry, clock, explore=False)
            carry = act.carry
            now = env.step(act.action)
            running += now.reward
            for episode in now.episodes:
                totals.setdefault(episode.row, (episode.total, episode.length))
            if len(totals) == rows:
                break
        returns = [totals.get(row, (float(running[row]), step + 1)) for row in range(rows)]
        return Evaluation(tuple(total for total, _ in returns), tuple(length for _, length in returns))

"""Seats of a player who plays against itself: its rows among those of all, and the results of its episodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import rlplug_core as rl
from rlplug_algos.many_agents.league import League
from rlplug_algos.many_agents.rows import step_of


class Seats:
    """The rows that the learner has: in world n the agent n; all where nobody else is, as in evaluation."""

    def __init__(self, spec: rl.Spec) -> None:
        agents = len(dict.fromkeys(spec.agents)) or 1
        if spec.kinds:
            raise rl.UsageError(f"self-play needs agents with the same spaces, and those of {spec.id} differ")
        worlds = np.arange(spec.num_envs // agents)
        self.worlds, self.agents = len(worlds), agents
        self.rows = worlds * agents + worlds % agents
        self.mine = np.zeros(spec.num_envs, np.bool_)
        self.mine[self.rows] = True


class SeatBuffer:
    """Hands the learner's rows to its buffer, and tells the league who won."""

    def __init__(self, seats: Seats, buffer: rl.Buffer[Any], league: League) -> None:
        self.seats, self.buffer, self.league = seats, buffer, league
        self.totals = np.zeros(len(seats.mine))

    def add(self, step: rl.Step, source: int = 0) -> None:
        self._score(step)
        self.buffer.add(step_of(step, self.seats.rows), source)

    def _score(self, step: rl.Step) -> None:
        """A world that ends is won by who got more than the others on average."""
        self.totals += step.reward
        over = (step.terminated | step.truncated)[self.seats.rows]
        if over.any() and self.seats.agents > 1:
            totals = self.totals.reshape(self.seats.worlds, self.seats.agents)
            own = self.totals[self.seats.rows]
            others = (totals.sum(1) - own) / (self.seats.agents - 1)
            for world in np.flatnonzero(over):
                self.league.played((np.sign(own[world] - others[world]) + 1) / 2)
                totals[world] = 0.0

    def batches(self, clock: rl.Clock) -> Iterable[Any]:
        return self.buffer.batches(clock)

    def feedback(self, batch: Any, result: rl.Result) -> None:
        self.buffer.feedback(batch, result)

    def state_dict(self) -> rl.State:
        return {"buffer": self.buffer.state_dict(), "totals": self.totals.copy()}

    def load_state_dict(self, state: rl.State) -> None:
        self.buffer.load_state_dict(state["buffer"])
        self.totals[:] = state["totals"]

"""Seats of a player who plays against itself: its rows among those of all, and the results of its episodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import rlplug_core as rl
from rlplug_algos.many_agents.league import League
from rlplug_algos.many_agents.rows import step_of
from rlplug_core.protocols import SupportsRestart


class Seats:
    """The rows that the learner has: in world n the agent n; all where nobody else is, as in evaluation."""

    def __init__(self, spec: rl.Spec) -> None:
        agents = len(dict.fromkeys(spec.agents)) or 1
        if spec.kinds:
            raise rl.UsageError(
                f"self-play needs agents with the same spaces, and those of {spec.id} differ"
            )
        worlds = np.arange(spec.num_envs // agents)
        self.worlds = len(worlds)
        self.agents = agents
        self.rows = worlds * agents + worlds % agents
        self.mine = np.zeros(spec.num_envs, np.bool_)
        self.mine[self.rows] = True


class SeatBuffer:
    """Hands the learner's rows to its buffer, and tells the league who won."""

    def __init__(self, seats: Seats, buffer: rl.Buffer[Any], league: League) -> None:
        self.seats = seats
        self.buffer = buffer
        self.league = league
        self.totals = np.zeros(len(seats.mine))
        self.playing = np.zeros(seats.worlds, np.bool_)
        self.theirs = np.full(
            seats.worlds, np.nan
        )  # of each world, the rating that was faced when its game began
        league.open = seats.agents > 1

    def add(self, step: rl.Step, source: int = 0) -> None:
        if self.league.open:
            self._score(step)
        self.buffer.add(step_of(step, self.seats.rows), source)

    def _score(self, step: rl.Step) -> None:
        """Decide the game of each world that begins anew: no end of a single agent's episode says that it is over."""
        shape = self.seats.worlds, self.seats.agents
        totals = self.totals.reshape(shape)
        opens = step.is_first.reshape(shape).all(1)
        for world in np.flatnonzero(opens & self.playing):
            score = self._result(totals[world], self.seats.rows[world] % self.seats.agents)
            self.league.played(score, float(self.theirs[world]))
        totals[opens], self.theirs[opens] = 0.0, self.league.facing
        totals += step.reward.reshape(shape)
        self.playing = (self.playing & ~opens) | step.valid.reshape(shape).any(1)

    def _result(self, totals: rl.Array, seat: int) -> float:
        """1 where the seat got more than the others on average, 0 where it got less, else 0.5."""
        others = (totals.sum() - totals[seat]) / (self.seats.agents - 1)
        return float(np.sign(totals[seat] - others) + 1) / 2

    def restart(self) -> None:
        """Leave broken off games undecided."""
        self.playing[:] = False
        if isinstance(self.buffer, SupportsRestart):
            self.buffer.restart()

    def batches(self, clock: rl.Clock) -> Iterable[Any]:
        return self.buffer.batches(clock)

    def feedback(self, batch: Any, result: rl.Result) -> None:
        self.buffer.feedback(batch, result)

    def state_dict(self) -> rl.State:
        own = {
            "totals": self.totals.copy(),
            "playing": self.playing.copy(),
            "theirs": self.theirs.copy(),
        }
        return {"buffer": self.buffer.state_dict(), **own}

    def load_state_dict(self, state: rl.State) -> None:
        self.buffer.load_state_dict(state["buffer"])
        self.totals[:], self.playing[:] = state["totals"], state.get("playing", True)
        self.theirs[:] = state.get("theirs", self.league.facing)

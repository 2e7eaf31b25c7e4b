"""Seats of a learner that plays against itself: its rows, and the results of its games."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import rlplug_core as rl
from rlplug_algos.many_agents.groups import take_step_rows
from rlplug_algos.many_agents.league import League
from rlplug_core.protocols import SupportsRestart


class Seats:
    """The learner's rows: agent n (modulo the number of agents) of world n; all rows if worlds have one agent."""

    def __init__(self, spec: rl.Spec) -> None:
        agents = spec.agents_per_world
        if spec.kinds:
            raise rl.UsageError(
                f"self-play needs agents with the same spaces, but those of {spec.id} differ"
            )
        worlds = np.arange(spec.num_envs // agents)
        self.worlds = len(worlds)
        self.agents = agents
        self.rows = worlds * agents + worlds % agents
        #: [num_envs] whether a row is the learner's.
        self.mask = np.zeros(spec.num_envs, np.bool_)
        self.mask[self.rows] = True


class SeatBuffer:
    """Adds the learner's rows to its buffer, and reports results to the league."""

    def __init__(
        self,
        seats: Seats,
        buffer: rl.Buffer[Any],
        league: League,
    ) -> None:
        self.seats = seats
        self.buffer = buffer
        self.league = league
        #: [num_envs] the sum of each row's rewards in the current game.
        self.totals = np.zeros(len(seats.mask))
        #: [worlds] whether each world has an unfinished game.
        self.playing = np.zeros(seats.worlds, np.bool_)
        #: [worlds] the opponent's rating at the start of each world's game.
        self.opponent_ratings = np.full(seats.worlds, np.nan)
        league.open = seats.agents > 1

    def add(self, step: rl.Step, source: int = 0) -> None:
        if self.league.open:
            self._report_results(step)
        self.buffer.add(take_step_rows(step, self.seats.rows), source)

    def _report_results(self, step: rl.Step) -> None:
        """Report the game of each world that restarts; the end of one agent's episode does not end a game."""
        shape = self.seats.worlds, self.seats.agents
        totals = self.totals.reshape(shape)
        starts = step.is_first.reshape(shape).all(1)
        for world in np.flatnonzero(starts & self.playing):
            total = totals[world, self.seats.rows[world] % self.seats.agents]
            others = (totals[world].sum() - total) / (self.seats.agents - 1)
            # 1 for more than the average of the others, 0 for less, else 0.5.
            score = float(np.sign(total - others) + 1) / 2
            self.league.record_result(score, float(self.opponent_ratings[world]))
        totals[starts] = 0.0
        self.opponent_ratings[starts] = self.league.opponent_rating
        totals += step.reward.reshape(shape)
        self.playing = (self.playing & ~starts) | step.valid.reshape(shape).any(1)

    def restart(self) -> None:
        """Drop unfinished games."""
        self.playing[:] = False
        if isinstance(self.buffer, SupportsRestart):
            self.buffer.restart()

    def batches(self, clock: rl.Clock) -> Iterable[Any]:
        return self.buffer.batches(clock)

    def feedback(self, batch: Any, result: rl.Result) -> None:
        self.buffer.feedback(batch, result)

    def state_dict(self) -> rl.State:
        return {
            "buffer": self.buffer.state_dict(),
            "totals": self.totals.copy(),
            "playing": self.playing.copy(),
            "theirs": self.opponent_ratings.copy(),
        }

    def load_state_dict(self, state: rl.State) -> None:
        self.buffer.load_state_dict(state["buffer"])
        self.totals[:] = state["totals"]
        # Older checkpoints do not have these.
        self.playing[:] = state.get("playing", True)
        self.opponent_ratings[:] = state.get("theirs", self.league.opponent_rating)

"""Self-play against past versions of the player (Bansal et al., 2018, arXiv:1710.03748), with an Elo rating (1978)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import rlplug_core as rl
from rlplug_algos.many_agents.league import League
from rlplug_algos.many_agents.seats import SeatBuffer, Seats
from rlplug_core.acting.states import begin_acting
from rlplug_core.loop.info_columns import signals_of
from rlplug_core.plugins.learners import learner_of
from rlplug_core.protocols import SupportsFinish
from rlplug_core.types import tree_where


@dataclass(frozen=True)
class SelfPlayConfig(rl.Config):
    """Options of self-play."""

    player: str = "ppo"  # algorithm of the player, NAME or NAME:option=value,…
    # env steps between snapshots of the weights
    snapshot_every: rl.Count = 20_000
    swap_every: rl.Count = 4_000  # env steps between choices of an opponent
    window: rl.Count = 10  # number of snapshots to keep
    # probability that the opponent is a past version instead of the current weights
    past: rl.UnitInterval = 0.5


class SelfPlay:
    """One learner in one seat of each world; an opponent acts in all other seats and does not learn.

    A seat is an agent's place in a world, such as the first or the second player. The learner has seat n in world n
    (modulo the number of seats), so it learns every seat if there are enough worlds. The opponent is the learner itself
    or one of its past versions. Each game updates the learner's rating by Elo's rule; a past version keeps its rating.
    """

    Config = SelfPlayConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = rl.SPACES

    def __init__(
        self,
        spec: rl.Spec,
        config: SelfPlayConfig,
        context: rl.Context,
    ) -> None:
        self.seats = Seats(spec)
        learner_spec = replace(spec, num_envs=len(self.seats.rows), agents=())
        #: The fraction of all rows that belong to the learner.
        self.share = learner_spec.num_envs / spec.num_envs
        self.learner = learner_of(config.player, learner_spec, context)
        self.signals = signals_of(self.learner)
        self.opponent = learner_of(
            config.player, learner_spec, replace(context, seeds=context.seeds.child("opponent"))
        )
        self.league = League(config.window, config.past, context.seeds.child("league").generator())
        self.config = config

    def agent(self, rank: int = 0, ranks: int = 1) -> SelfPlayAgent:
        return SelfPlayAgent(
            self, self.learner.agent(rank, ranks), self.opponent.agent(rank, ranks)
        )

    def buffer(self) -> SeatBuffer:
        return SeatBuffer(self.seats, self.learner.buffer(), self.league)

    def update(self, batch: Any, clock: rl.Clock) -> rl.Result:
        result = self.learner.update(batch, clock.with_updates(clock.updates, self.share))
        metrics = {**result.metrics, "rating/elo": self.league.rating}
        return rl.Result(metrics, result.priority, result.extras)

    def finish(self, clock: rl.Clock) -> None:
        if isinstance(self.learner, SupportsFinish):
            self.learner.finish(clock.with_updates(clock.updates, self.share))

    def state_dict(self) -> rl.State:
        return {"learner": self.learner.state_dict(), "league": self.league.state_dict()}

    def load_state_dict(self, state: rl.State) -> None:
        self.learner.load_state_dict(state["learner"])
        self.league.load_state_dict(state["league"])


class SelfPlayAgent:
    """Acts as the learner in its seats and as the opponent in the others; in evaluation as the learner in all seats."""

    def __init__(
        self,
        self_play: SelfPlay,
        player: rl.Agent,
        opponent: rl.Agent,
    ) -> None:
        self.league = self_play.league
        self.config = self_play.config
        self.seats = self_play.seats
        #: The learner's agent.
        self.player = player
        self.opponent = opponent
        #: Both agents, wrapped if necessary so that their recurrent states are dictionaries of arrays.
        self.player_acting = player
        self.opponent_acting = opponent
        self.share = self_play.share

    def weights(self) -> rl.State:
        return self.player.weights()

    def initial(self, num_envs: int) -> rl.RecurrentState:
        self.player_acting, memory = begin_acting(self.player, num_envs)
        self.opponent_acting, _ = begin_acting(self.opponent, num_envs)
        return memory

    def act(
        self,
        obs: rl.Obs,
        is_first: rl.Array,
        recurrent_state: rl.RecurrentState,
        clock: rl.Clock,
        explore: bool = True,
    ) -> rl.Act:
        if not (explore and self.league.open):
            return self.player_acting.act(obs, is_first, recurrent_state, clock, explore)
        self.league.keep(self.player.weights(), clock.steps, self.config.snapshot_every)
        self.league.choose(self.opponent.weights(), clock.steps, self.config.swap_every)
        clock = clock.of_part(self.share)
        player_act = self.player_acting.act(obs, is_first, recurrent_state, clock)
        if self.league.opponent is None:
            return player_act
        opponent_act = self.opponent_acting.act(obs, is_first, recurrent_state, clock)
        rows: Any = tree_where(self.seats.mask, _tree(player_act), _tree(opponent_act))
        return rl.Act(rows["action"], rows["memory"], player_act.extras)

    def state_dict(self) -> rl.State:
        return {"own": self.player.state_dict(), "opponent": self.opponent.state_dict()}

    def load_state_dict(self, state: rl.State) -> None:
        self.player.load_state_dict(state["own"])
        self.opponent.load_state_dict(state["opponent"])
        self.league.copy_opponent(self.opponent.weights())


def _tree(act: rl.Act) -> dict[str, Any]:
    return {"action": act.action, "memory": act.recurrent_state}

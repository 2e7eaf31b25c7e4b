"""The actor: steps an environment with agents, and turns what happened into steps for buffers."""

from __future__ import annotations

from collections.abc import Mapping

from rlplug_core.clock import Clock
from rlplug_core.loop.step_agent import carried, holding
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, AnyBuffer, AnyLearner, Env, SupportsRestart
from rlplug_core.types import Act, Episode, State, Step, tree_map

#: The entries that lead to environments in the state of a runner.
_TO_ENVS = ("actor", "actors", "workers", "all", "env")


class Actor:
    """Steps `env` with `agent`, advances the clock by the valid rows, collects finished episodes.

    It holds the learner and the buffer that its steps are for; the runner passes steps and batches between them.
    """

    def __init__(
        self, env: Env, learner: AnyLearner, agent: Agent, buffer: AnyBuffer, clock: Clock
    ) -> None:
        self.env = env
        self.learner = learner
        self.agent = agent
        self.buffer = buffer
        self.clock = clock
        self.episodes: list[tuple[int, Episode]] = []

    def reset(self, seed: int) -> None:
        """Begin every environment for the first time, by the run's seed of environments."""
        self.seed = seed
        self._open(seed)

    def _open(self, seed: int) -> None:
        now = self.env.reset(seed)
        self.obs = now.obs
        self.is_first = now.is_first
        self.turn = now.turn
        self.held: Act | None = None
        self.recurrent_state = self.agent.initial(self.env.spec.num_envs)

    def step(self) -> Step:
        """Act in every environment once; return the transition of every row."""
        obs = self.obs
        first = self.is_first
        recurrent_state = self.recurrent_state
        act = self.agent.act(obs, first, recurrent_state, self.clock)
        if self.turn is not None:
            act = self.held = holding(self.turn, act, self.held)
        now = self.env.step(act.action)
        self.obs = now.obs
        self.is_first = now.is_first
        self.turn = now.turn
        self.recurrent_state = act.recurrent_state
        if now.count < len(now.valid):
            self.is_first, self.recurrent_state = carried(now, act, first, recurrent_state)
        self.clock.advance(now.count)
        if now.episodes:
            self.episodes += [(self.clock.steps, episode) for episode in now.episodes]
        return Step(
            obs=obs,
            action=act.action,
            reward=now.reward,
            next_obs=now.final_obs,
            terminated=now.terminated,
            truncated=now.truncated,
            is_first=first,
            valid=now.valid,
            ended=now.ended,
            extras=act.extras,
            recurrent_state=recurrent_state,
        )

    def take_episodes(self) -> list[tuple[int, Episode]]:
        """The episodes that finished since the last call, each with the clock's steps at that moment."""
        taken = self.episodes
        self.episodes = []
        return taken

    def state_dict(self) -> State:
        copy = lambda array: array.copy()  # noqa: E731
        return {
            "env": self.env.state_dict(),
            "agent": self.agent.state_dict(),
            "obs": tree_map(copy, self.obs),
            "is_first": self.is_first.copy(),
            "recurrent_state": tree_map(copy, self.recurrent_state),
            "episodes": [[steps, *episode.plain()] for steps, episode in self.episodes],
            "turn": tree_map(copy, self.turn),
            "held": None
            if self.held is None
            else [self.held.action.copy(), tree_map(copy, self.held.extras)],
        }

    def load_state_dict(self, state: State) -> None:
        self.episodes = [(steps, Episode(*plain)) for steps, *plain in state["episodes"]]
        if "inexact" in state["env"]:
            self._begin_anew(state["env"])
        else:
            self.env.load_state_dict(state["env"])
            self.agent.initial(self.env.spec.num_envs)
            self.obs = state["obs"]
            self.is_first = state["is_first"]
            self.recurrent_state = state["recurrent_state"]
            held = state.get("held")
            self.turn = state.get("turn")
            self.held = None if held is None else Act(held[0], None, held[1])
        self.agent.load_state_dict(state["agent"])

    def _begin_anew(self, env: State) -> None:
        """An environment whose state cannot be captured starts fresh episodes, which nothing joins to the old ones.

        What its wrappers have learned they keep.
        """
        if complete(self.env).learned():
            self.env.load_state_dict(env)
        self._open(self.seed + self.clock.steps)
        if isinstance(self.buffer, SupportsRestart):
            self.buffer.restart()


def missing_env_state(state: object) -> str:
    """Return why the state of an environment is missing from the state of a runner; "" if none is missing."""
    if isinstance(state, Mapping):
        if "inexact" in state:
            return str(state["inexact"])
        parts = [state[name] for name in _TO_ENVS if name in state]
    else:
        parts = list(state) if isinstance(state, list | tuple) else []
    return next(filter(None, map(missing_env_state, parts)), "")

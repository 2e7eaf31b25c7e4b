"""Actors: step an environment with an agent, and turn the results into steps for buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlplug_core.acting.policy_agent import start_on_device
from rlplug_core.acting.states import begin_acting
from rlplug_core.arrays import check_shape, copy_of, to_device
from rlplug_core.clock import Clock
from rlplug_core.loop.info_columns import InfoColumns
from rlplug_core.plugins.device_episodes import EndedRows, read
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, AnyBuffer, AnyLearner, Env, SupportsRestart
from rlplug_core.types import (
    Act,
    Array,
    Episode,
    RecurrentState,
    Spec,
    State,
    Step,
    Timestep,
    tree_map,
    tree_where,
)


class StepAgent:
    """Steps an environment with an agent, without learning; the environment starts from `seed`.

    Attributes:
        now: the last timestep.
    """

    def __init__(self, agent: Agent, env: Env, seed: int) -> None:
        self.env = env
        self.agent, self.recurrent_state = start_agent(agent, env.spec)
        self.now = env.reset(seed)
        self.is_first = self.now.is_first
        #: The last action of each row, if rows take turns.
        self.held: Act | None = None

    def step(self, clock: Clock, explore: bool) -> Act:
        """Act in every row once; return the actions."""
        before = self.recurrent_state
        first = self.is_first
        turn = self.now.turn
        act = self.agent.act(self.now.obs, first, before, clock, explore=explore)
        if turn is not None:
            act = self.held = hold_actions(turn, act, self.held)
        self.now = self.env.step(act.action)
        self.is_first, self.recurrent_state = carry_over(self.now, act, first, before)
        return act


def start_agent(agent: Agent, spec: Spec) -> tuple[Agent, RecurrentState]:
    """Prepare an agent for an environment: to act on its device, and to have recurrent states in plain form.

    Returns:
        The agent, with recurrent states that are nested dictionaries of arrays, and its state before the first step.

    Raises:
        UsageError: the environment gives tensors, which the agent does not take.
    """
    acting, memory = begin_acting(agent, spec.num_envs, tensors=spec.device is not None)
    if spec.device is None:
        return acting, memory
    start_on_device(agent, spec.num_envs, spec.device)
    return acting, None if memory is None else to_device(memory, spec.device)


def hold_actions(turn: Array, act: Act, held: Act | None) -> Act:
    """Return the new actions of the rows in the mask `turn` [N], and the `held` actions of the others."""
    if held is None:
        return act
    candidates = ({"action": each.action, "extras": each.extras} for each in (act, held))
    merged: Any = tree_where(turn, *candidates)
    return Act(merged["action"], act.recurrent_state, merged["extras"])


def carry_over(
    now: Timestep,
    act: Act,
    first: Array,
    before: RecurrentState,
) -> tuple[Array, RecurrentState]:
    """Return `is_first` [N] and the memory for the agents' next observation.

    A row that was absent in this step has no new observation: it keeps its memory, and its `is_first` if that was true.

    Args:
        now: the environment's timestep.
        act: the agents' actions and new memory.
        first: [N] `is_first` at the time of the action.
        before: their memory at that time.
    """
    if before is None or now.count == len(now.valid):
        return now.is_first, act.recurrent_state
    return now.is_first | (first & ~now.valid), tree_where(now.valid, act.recurrent_state, before)


#: After this many unread steps with finished episodes, the actor waits for the device and reads them.
MOST_UNREAD = 1_024
#: The keys that lead to environments in the state of a runner.
_TO_ENVS = ("actor", "actors", "workers", "all", "env")


class Actor:
    """Steps `env` with `agent`, advances the clock by the valid rows, collects finished episodes.

    It holds the learner and the buffer that its steps are for; the runner passes steps and batches between them.
    """

    def __init__(
        self,
        env: Env,
        learner: AnyLearner,
        agent: Agent,
        buffer: AnyBuffer,
        clock: Clock,
    ) -> None:
        self.env = env
        self.learner = learner
        self.agent = agent
        self.buffer = buffer
        self.clock = clock
        #: The number of learners that step at the same time, each in its own environments; the clock counts all steps.
        self.learners = 1
        #: The columns of `info` that the learner names in `signals`; None if it names none.
        self.signals = InfoColumns.of(learner, env)
        self.episodes: list[tuple[int, Episode]] = []
        #: Steps that ended episodes on a device, not read yet.
        self.unread: list[tuple[int, EndedRows]] = []

    def reset(self, seed: int) -> None:
        """Reset every environment for the first time, with the run's seed of environments."""
        self.seed = seed
        self._reset_envs(seed)

    def _reset_envs(self, seed: int) -> None:
        now = self.env.reset(seed)
        self.obs = now.obs
        self.is_first = now.is_first
        self.turn = now.turn
        #: The last action of each row, if rows take turns.
        self.held: Act | None = None
        #: The agent, adapted by `start_agent`.
        self.acting, self.recurrent_state = start_agent(self.agent, self.env.spec)

    def step(self) -> Step:
        """Act in every environment once; return the transition of every row."""
        obs = self.obs
        first = self.is_first
        recurrent_state = self.recurrent_state
        act = self.acting.act(obs, first, recurrent_state, self.clock)
        if self.turn is not None:
            act = self.held = hold_actions(self.turn, act, self.held)
        now = self.env.step(act.action)
        self.obs = now.obs
        self.is_first = now.is_first
        self.turn = now.turn
        self.recurrent_state = act.recurrent_state
        if now.count < len(now.valid):
            self.is_first, self.recurrent_state = carry_over(now, act, first, recurrent_state)
        self.clock.advance(now.count * self.learners)
        extras = act.extras
        if self.signals is not None:
            extras = self.signals.add_to(extras, now.valid)
        if now.episodes:
            self._store_episodes(now.episodes)
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
            extras=extras,
            recurrent_state=recurrent_state,
        )

    def _store_episodes(self, episodes: Sequence[Episode] | EndedRows) -> None:
        """Store the episodes that ended in a step; those on a device are read later."""
        if isinstance(episodes, EndedRows):
            self.unread.append((self.clock.steps, episodes))
            if len(self.unread) == MOST_UNREAD:  # one wait for the device
                self._read_device_episodes()
        else:
            self.episodes += [(self.clock.steps, episode) for episode in episodes]

    def _read_device_episodes(self) -> None:
        self.episodes += read(self.unread)
        self.unread = []
        if self.signals is not None:
            self.signals.check()

    def take_episodes(self) -> list[tuple[int, Episode]]:
        """Return the episodes that finished since the last call, each with the clock's steps at its end."""
        self._read_device_episodes()
        episodes = self.episodes
        self.episodes = []
        return episodes

    def state_dict(self) -> State:
        self._read_device_episodes()
        held = None
        if self.held is not None:
            held = [self.held.action.copy(), tree_map(copy_of, self.held.extras)]
        return {
            "env": self.env.state_dict(),
            "agent": self.agent.state_dict(),
            "obs": tree_map(copy_of, self.obs),
            "is_first": copy_of(self.is_first),
            "recurrent_state": tree_map(copy_of, self.recurrent_state),
            "episodes": [[steps, *episode.plain()] for steps, episode in self.episodes],
            "turn": tree_map(copy_of, self.turn),
            "held": held,
            **({} if self.signals is None else {"signals": self.signals.state_dict()}),
        }

    def load_state_dict(self, state: State) -> None:
        self.episodes = [(steps, Episode(*plain)) for steps, *plain in state["episodes"]]
        if "inexact" in state["env"]:
            self._start_new_episodes(state["env"])
        else:
            self.env.load_state_dict(state["env"])
            self.acting, memory = start_agent(self.agent, self.env.spec)
            current = {"obs": self.obs, "is_first": self.is_first, "recurrent_state": memory}
            loaded = {name: tree_map(check_shape, state[name], current[name]) for name in current}
            if self.env.spec.device is not None:
                loaded = to_device(loaded, self.env.spec.device)
            self.obs = loaded["obs"]
            self.is_first = loaded["is_first"]
            self.recurrent_state = loaded["recurrent_state"]
            held = state.get("held")
            self.turn = state.get("turn")
            self.held = None if held is None else Act(held[0], None, held[1])
        self.agent.load_state_dict(state["agent"])
        if self.signals is not None:
            self.signals.load_state_dict(state.get("signals", {}))

    def _start_new_episodes(self, env: State) -> None:
        """Start new episodes that do not continue the old ones, because the environment's state could not be saved.

        Wrappers keep their learned state.
        """
        if complete(self.env).learned():
            self.env.load_state_dict(env)
        self._reset_envs(self.seed + self.clock.steps)
        if isinstance(self.buffer, SupportsRestart):
            self.buffer.restart()


def sort_episodes(
    by_actor: Iterable[Sequence[tuple[int, Episode]]],
) -> list[tuple[int, int, Episode]]:
    """Return the finished episodes of several actors as (steps, rank, episode), in the order in which they ended."""
    triples = [
        (steps, rank, episode)
        for rank, episodes in enumerate(by_actor)
        for steps, episode in episodes
    ]
    return sorted(triples, key=lambda triple: triple[0])


def missing_env_state(state: object) -> str:
    """Return why the state of an environment is missing from the state of a runner; "" if all are there."""
    if isinstance(state, Mapping):
        if "inexact" in state:
            return str(state["inexact"])
        inner = [state[name] for name in _TO_ENVS if name in state]
    else:
        inner = list(state) if isinstance(state, list | tuple) else []
    return next(filter(None, map(missing_env_state, inner)), "")

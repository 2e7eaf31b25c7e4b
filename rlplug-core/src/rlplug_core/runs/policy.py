"""`Policy`: the trained agent of a run; takes observations and returns actions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.acting.states import from_dicts, to_dicts
from rlplug_core.batches import rows_of
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError, quote_all
from rlplug_core.loop.plan import Plan
from rlplug_core.nets.actions import row_of
from rlplug_core.nets.one_hot import Counted, first_altered, outlier
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.spec import close_on_error
from rlplug_core.plugins.transform import is_wrapper
from rlplug_core.protocols import Agent, Env
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.evaluation import load_learner
from rlplug_core.types import MASK, Array, Obs, RecurrentState, Space, State, tree_map


class Policy:
    """Maps observations to actions as in evaluation: one observation or a batch, in the units of the environment.

    The agent acts greedily, unless an option such as `eval_eps` sets the probability of another action; with
    `deterministic=False` it acts as in training at the clock's progress. It draws random numbers for as many rows as a
    call has. The run's wrappers process the observations as in an episode.

    Unpickled in another process, it is loaded again from its run or export, with the same weights and no memory.

    Args:
        origin: loads it again, deterministic or not; without one it cannot be pickled.

    Attributes:
        observation_space, action_space: of its input and its output.
    """

    def __init__(
        self,
        agent: Agent,
        env: Env,
        clock: Clock | None = None,
        deterministic: bool = True,
        origin: Callable[[bool], Policy] | None = None,
    ) -> None:
        self._origin = origin
        self._agent = agent
        self._env = env
        self._clock = clock or Clock(1)
        self.deterministic = deterministic
        self.observation_space = complete(env).source.obs
        self.action_space = complete(env).action_space
        self._state = agent.initial(1)
        self._first = np.ones(1, dtype=bool)

    def __repr__(self) -> str:
        how = "" if self.deterministic else ", stochastic"
        return f"Policy({self._env.spec.id}: {self.observation_space} -> {self.action_space}{how})"

    def __reduce__(self) -> tuple[Callable[[bool], Policy], tuple[bool]]:
        if self._origin is None:
            raise TypeError(
                f"{self!r} was made in this process and cannot be pickled; load it from a run or an export"
            )
        return self._origin, (self.deterministic,)

    def __deepcopy__(self, memo: dict[int, object]) -> Policy:
        """Return a copy in this process, with the same memory."""
        memo[id(self)] = copied = Policy.__new__(Policy)
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def reset(self) -> None:
        """Clear all memory; needed between episodes if the policy or a wrapper has a memory."""
        self._state = self._agent.initial(1)
        self._first = np.ones(1, dtype=bool)

    def state_dict(self) -> State:
        """Return the memory of the policy and of its wrappers, and the state of its random draws; not the weights."""
        memory = to_dicts(self._state, len(self._first))
        return {
            "recurrent_state": tree_map(np.copy, memory),
            "is_first": self._first.copy(),
            "agent": self._agent.state_dict(),
            "env": self._env.state_dict() if is_wrapper(self._env) else None,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from the result of `state_dict` of a policy of the same run."""
        memory = tree_map(np.copy, state["recurrent_state"])
        self._state = from_dicts(memory, self._state)
        self._first = np.array(state["is_first"])
        self._agent.load_state_dict(state["agent"])
        if state["env"] is not None:
            self._env.load_state_dict(state["env"])

    def __call__(self, obs: Obs) -> Any:
        """Return the action for one observation, or for [B, ...] of them; wrappers with memory take one at a time.

        A policy with memory has one for each of B rows. Another number of rows than before starts with an empty memory.

        Raises:
            UsageError: the observation has a wrong shape, a NaN in it or a number outside its space, or a part of it
                is missing, such as the mask of an environment that has it in `info`.
        """
        obs = _canonical(self.observation_space, obs)
        single = self._is_single(obs)
        batch = _batch(self.observation_space, obs, single)
        rows = rows_of(batch)
        if self._state is not None and rows != len(self._first):
            self._state = self._agent.initial(rows)
            self._first = np.ones(rows, dtype=bool)
        batch = complete(self._env).observe(batch, self._first)
        act = self._agent.act(
            batch, self._first, self._state, self._clock, explore=not self.deterministic
        )
        self._state = act.recurrent_state
        self._first = np.zeros(len(self._first), dtype=bool)
        action = complete(self._env).translate(act.action)
        return row_of(action, 0) if single else action

    def predict(
        self,
        obs: Obs,
        state: RecurrentState = None,
        episode_start: object = None,
        deterministic: bool | None = None,
    ) -> tuple[Any, RecurrentState]:
        """Return the action and None, for code written for Stable-Baselines3; the policy keeps its own memory.

        Args:
            state: not used; `state_dict` returns the memory.
            episode_start: [B], or one value for all: rows that start an episode, whose memory is cleared.
            deterministic: overrides the argument of `load` for this action.
        """
        starts = np.atleast_1d(
            np.asarray(False if episode_start is None else episode_start, dtype=bool)
        )
        if starts.all():
            self.reset()
        elif starts.any():
            self._first = self._first | starts
        before = self.deterministic
        self.deterministic = before if deterministic is None else deterministic
        try:
            return self(obs), None
        finally:
            self.deterministic = before

    def _is_single(self, obs: Obs) -> bool:
        space = self.observation_space
        part = obs
        while isinstance(part, dict):
            name = next(iter(part))
            space = space[name]  # type: ignore[index]
            part = part[name]
        try:
            return np.ndim(part) == len(space.shape or ())
        except ValueError as error:  # lists of different lengths
            raise UsageError(
                f"the observation is not an array of numbers: {error}; one has shape {space.shape}"
            ) from error


def policy_of(
    plan: Plan,
    directory: RunDirectory,
    checkpoint: str,
    deterministic: bool,
    origin: Callable[[str, bool], Policy],
) -> Policy:
    """Return the policy of a run's checkpoint; `origin` loads the policy of a checkpoint by name, deterministic or not.

    Raises:
        UsageError: the checkpoint does not exist. BadCheckpoint: it cannot be read.
    """
    env = plan.make_env(1)
    with close_on_error(env):
        learner, saved = load_learner(plan, directory, env, checkpoint)
    clock = Clock(plan.options.total_timesteps, saved.step)
    return Policy(learner.agent(), env, clock, deterministic, partial(origin, saved.path.name))


def _canonical(space: Space, obs: object, place: str = "") -> Obs:
    """Return observations in the form of agents: tuples as dictionaries with keys "0", "1", …; `place` is a path."""
    if not isinstance(space, spaces.Dict):
        return obs
    if isinstance(obs, tuple):
        obs = {str(number): part for number, part in enumerate(obs)}
    if not isinstance(obs, Mapping):
        raise _missing_entries(
            space, f"is not a dictionary{f' in {place!r}' if place else ''}, which"
        )
    if missing := [f"{place}{name}" for name in space.spaces if name not in obs]:
        raise _missing_entries(space, f"lacks {quote_all(missing)}, which")
    return {
        name: _canonical(part, obs[name], f"{place}{name}/") for name, part in space.spaces.items()
    }


def _missing_entries(space: spaces.Dict, problem: str) -> UsageError:
    entries = ", ".join(
        f"'{name}': info['{name}']" if name == MASK else f"'{name}': …" for name in space.spaces
    )
    return UsageError(f"this observation {problem} the policy sees; give it {{{entries}}}")


def _batch(space: Space, obs: Obs, single: bool, name: str = "") -> Obs:
    """Return observations as rows [B, ...] with the types of the space; a single observation is one row.

    Raises:
        UsageError: a wrong shape, a NaN, or a number outside a Discrete or MultiDiscrete space.
    """
    if isinstance(space, spaces.Dict):
        return {
            key: _batch(part, obs[key], single, f"{name}/{key}")
            for key, part in space.spaces.items()
        }
    where = f"observation '{name[1:]}'" if name else "observation"
    shape = space.shape or ()
    values: Array = np.asarray(obs)
    rows = values[None] if single else values
    if rows.shape[1:] != shape or rows.dtype.kind not in "biuf":
        batch_shape = f"({', '.join(map(str, ('B', *shape)))})"
        raise UsageError(
            f"the {where} has shape {values.shape} of {values.dtype}; one is {shape}, many are {batch_shape}"
        )
    if rows.dtype.kind == "f" and np.isnan(rows).any():
        raise UsageError(
            f"the {where} holds a NaN; look at the environment or the sensor that gave it"
        )
    problem = outlier(space, rows) if isinstance(space, Counted) else first_altered(space, rows)
    if problem:
        raise UsageError(
            f"the {where} {problem[1]}; look at the environment or the sensor that gave it"
        )
    return rows.astype(space.dtype, copy=False)

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
    `deterministic=False` it acts as in training at the clock's progress. A call draws random numbers for as many rows
    as it has. The run's wrappers process the observations as in an episode.

    A pickle contains no weights: unpickling loads the policy again from its run or export, with an empty memory.

    Args:
        origin: loads the policy again; its argument is `deterministic`. Without it the policy cannot be pickled.

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
        self._clear_memory(1)

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
        """Return a copy with the same memory; it does not load the policy again, as a pickle would."""
        memo[id(self)] = copied = Policy.__new__(Policy)
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def reset(self) -> None:
        """Clear the memory of the policy and its wrappers; needed between episodes if they have one."""
        self._clear_memory(1)

    def _clear_memory(self, rows: int) -> None:
        self._state = self._agent.initial(rows)
        self._first = np.ones(rows, dtype=bool)

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
        """Load a state that `state_dict` of a policy of the same run returned."""
        memory = tree_map(np.copy, state["recurrent_state"])
        self._state = from_dicts(memory, self._state)
        self._first = np.array(state["is_first"])
        self._agent.load_state_dict(state["agent"])
        if state["env"] is not None:
            self._env.load_state_dict(state["env"])

    def __call__(self, obs: Obs) -> Any:
        """Return the action for one observation, or the actions for [B, ...]; wrappers with memory accept only one.

        A policy with memory has one for each of the B rows. If B changes, the memory is cleared.

        Raises:
            UsageError: the observation has a wrong shape, a NaN or a number outside its space, or an entry is missing,
                such as the mask that an environment has in `info`.
        """
        obs = _canonical(self.observation_space, obs)
        single = self._is_single(obs)
        batch = _batch(self.observation_space, obs, single)
        rows = rows_of(batch)
        if self._state is not None and rows != len(self._first):
            self._clear_memory(rows)
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
        """Return the action and None, for code written for Stable-Baselines3; the policy itself has the memory.

        Args:
            state: not used; `state_dict` returns the memory.
            episode_start: [B], or one value for all: whether a row starts an episode, so that its memory is cleared.
            deterministic: overrides the argument of `load` for this action.
        """
        starts = np.atleast_1d(
            np.asarray(False if episode_start is None else episode_start, dtype=bool)
        )
        if starts.all():
            self.reset()
        elif starts.any():
            self._first = self._first | starts
        default = self.deterministic
        self.deterministic = default if deterministic is None else deterministic
        try:
            return self(obs), None
        finally:
            self.deterministic = default

    def _is_single(self, obs: Obs) -> bool:
        """Return whether this is one observation, not a batch of them."""
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
    """Return the policy of a run's checkpoint; `origin` loads it again, from the checkpoint's name and `deterministic`.

    Raises:
        UsageError: the checkpoint does not exist. BadCheckpoint: it cannot be read.
    """
    env = plan.make_env(1)
    with close_on_error(env):
        learner, saved = load_learner(plan, directory, env, checkpoint)
    clock = Clock(plan.options.total_timesteps, saved.step)
    return Policy(learner.agent(), env, clock, deterministic, partial(origin, saved.path.name))


def _canonical(space: Space, obs: object, place: str = "") -> Obs:
    """Return observations in the form of agents: tuples as dictionaries with the keys "0", "1", ….

    `place` is the path to the entry in messages.
    """
    if not isinstance(space, spaces.Dict):
        return obs
    if isinstance(obs, tuple):
        obs = {str(number): part for number, part in enumerate(obs)}
    if not isinstance(obs, Mapping):
        raise _missing_entries_error(
            space, f"is not a dictionary{f' in {place!r}' if place else ''}, which"
        )
    if missing := [f"{place}{name}" for name in space.spaces if name not in obs]:
        raise _missing_entries_error(space, f"lacks {quote_all(missing)}, which")
    return {
        name: _canonical(part, obs[name], f"{place}{name}/") for name, part in space.spaces.items()
    }


def _missing_entries_error(space: spaces.Dict, problem: str) -> UsageError:
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
    subject = f"the observation '{name[1:]}'" if name else "the observation"
    shape = space.shape or ()
    values: Array = np.asarray(obs)
    rows = values[None] if single else values
    if rows.shape[1:] != shape or rows.dtype.kind not in "biuf":
        batch_shape = f"({', '.join(map(str, ('B', *shape)))})"
        raise UsageError(
            f"{subject} has shape {values.shape} of {values.dtype}; one is {shape}, many are {batch_shape}"
        )
    if rows.dtype.kind == "f" and np.isnan(rows).any():
        raise UsageError(
            f"{subject} holds a NaN; look at the environment or the sensor that gave it"
        )
    problem = outlier(space, rows) if isinstance(space, Counted) else first_altered(space, rows)
    if problem:
        raise UsageError(
            f"{subject} {problem[1]}; look at the environment or the sensor that gave it"
        )
    return rows.astype(space.dtype, copy=False)

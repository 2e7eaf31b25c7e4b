"""`Adapter`: converts any Gymnasium vector environment, in any of the three autoreset modes, to our interface."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlplug_core.errors import BadEnv
from rlplug_core.types import MASK, Array, Episode, Obs, Spec, State, Timestep, tree_map
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.families.limits import entry_limit
from rlplug_envs.observation_dtypes import SQUARES
from rlplug_envs.observation_writer import ObservationWriter, check_own_arrays
from rlplug_envs.rows import (
    action_error,
    are_usual,
    capture_rows,
    check_last,
    check_masked_reset,
    check_state,
    double_buffer,
    row_seed,
)
from rlplug_envs.spaces import View, masked, merge
from rlplug_envs.step_info import episode_numbers, infos_of_rows, success, values_of_rows
from rlplug_envs.watch import (
    Watch,
    check_info,
    check_late_mask,
    check_results,
    check_rewards,
    close_env,
)

GymVector: TypeAlias = VectorEnv[Any, Any, Any]
MakeVector: TypeAlias = Callable[[], GymVector]


class Adapter:
    """Adapts a foreign vector environment to `rlplug_core.protocols.Env`.

    `metadata["autoreset_mode"]` of the vector environment says when it resets a finished environment; it is required.
    In each mode `final_obs` is the observation after the last action of an episode:

    - NEXT_STEP resets the row in the next call and ignores its action; the row of that call has `valid=False` and
      reward 0.
    - SAME_STEP resets the row in the same call; `final_obs` comes from `info["final_obs"]`. Gymnasium's own vector puts
      the environment's array there and then resets, so an environment that writes into one array is refused.
    - DISABLED resets nothing: the adapter does a masked reset, and checks the first one, because some ignore the mask.

    Args:
        make: makes the vector environment.
        id: the name in messages and in `spec.id`.
        inexact: why its state cannot be captured, "" if it can, None to test it with `capture.self_test`.
    """

    def __init__(
        self,
        make: MakeVector,
        id: str = "",
        inexact: str | None = None,
    ) -> None:
        self.venv = venv = make()
        id = id or type(venv.unwrapped).__name__
        if isinstance(venv.unwrapped, AsyncVectorEnv):
            inexact = (
                f"{id}: its environments run in other processes, so their state cannot be captured"
            )
        if inexact is None:
            inexact = self_test(lambda: Adapter(make, id, inexact=""))
        self._finish = self._select_finish(id)
        info = self.first_info()
        check_info(id, info, "reset")
        self._view = View(
            venv.single_observation_space, venv.single_action_space, info, id, batched=True
        )
        rows = venv.num_envs
        limit = entry_limit(venv)
        self.action_space = venv.single_action_space
        self.spec = Spec(self._view.obs, self._view.action, rows, id, inexact=inexact, limit=limit)
        self._writer = ObservationWriter(self._view, self.spec, self._describe_step)
        self._maskless = not masked(self._view.obs)
        self._verified = False
        self._limit: float = inf
        self._allocate(rows)
        self._start_episodes(np.zeros(rows, np.int64), np.zeros(rows), self._false)

    def _allocate(self, rows: int) -> None:
        """Make the arrays of rows, before the first reset."""
        self._info: dict[str, Any] = {}  # of the last step
        #: None before the first reset, so that `step` refuses every action.
        self._action_shape: tuple[int, ...] | None = None
        self._false = np.zeros(rows, np.bool_)
        self._true = np.ones(rows, np.bool_)
        self._now, self._next = double_buffer(self.spec, self._false, self._true)

    def first_info(self) -> dict[str, Any]:
        """Return the `info` of a reset, which shows whether the environment has action masks."""
        return self.venv.reset(seed=0)[1]

    def _select_finish(self, id: str) -> Callable[..., Timestep]:
        mode = self.venv.metadata.get("autoreset_mode")
        if mode is AutoresetMode.NEXT_STEP:
            return self._next_step
        if mode is AutoresetMode.SAME_STEP:
            if isinstance(self.venv.unwrapped, SyncVectorEnv):
                check_own_arrays(self.venv.unwrapped.envs[0], id)
            return self._same_step
        if mode is AutoresetMode.DISABLED:
            return self._reset_ended
        raise BadEnv(
            f"{id}: the vector environment does not say when it resets an environment after an episode; set "
            "metadata['autoreset_mode'] to gymnasium.vector.AutoresetMode.NEXT_STEP, SAME_STEP or DISABLED in its class"
        )

    def _start_episodes(
        self,
        lengths: Array,
        totals: Array,
        resetting: Array,
    ) -> None:
        """Set the lengths and returns of running episodes, and the rows that a NEXT_STEP environment resets next."""
        self._time = 0
        self._starts = -lengths
        self._deadline = self._starts.min() + self._limit
        self._totals = totals
        self._resetting = resetting
        self._has_resets = bool(resetting.any())

    def reset(self, seed: int) -> Timestep:
        """Reset every environment, with a seed for each if the vector environment takes several seeds."""
        num_envs = self.spec.num_envs
        self._start_episodes(np.zeros(num_envs, np.int64), np.zeros(num_envs), self._false)
        self._action_shape = self._view.action_shape(num_envs)
        self._now, self._next = self._next, self._now
        _, obs, reward, watch = self._now
        reward[:] = 0
        seeds: Any = row_seed(seed, 0)
        if isinstance(self.venv.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            seeds = [row_seed(seed, row) for row in range(num_envs)]
        value, info = self.venv.reset(seed=seeds)
        self._check_info(info, "reset")
        self._writer.write(obs, value, info, self._false)
        self._check_obs(watch)
        return Timestep.opening(obs, reward, self._true, self._false)

    def step(self, action: Array) -> Timestep:
        """Step every environment with its action [N, ...]."""
        if action.shape != self._action_shape:
            raise action_error(self.spec.id, action, self._action_shape)
        self._now, self._next = self._next, self._now
        quiet, obs, reward, watch = self._now
        env_action = self._view.translate(action)
        value, env_reward, terminated, truncated, info = self.venv.step(env_action)
        self._info = info
        self._time += 1
        if info.__class__ is not dict or (self._maskless and MASK in info):
            self._check_info(info, "step")
        env_reward = self._finite_rewards(env_reward, terminated, truncated)
        ended = np.logical_or(terminated, truncated)
        has_events = self._has_resets or bool(np.count_nonzero(ended))
        self._writer.write(obs, value, info, ended | self._resetting if has_events else self._false)
        reward[:] = env_reward
        self._totals += env_reward
        self._check_obs(watch)
        if not has_events and self._time < self._deadline:
            return quiet
        timestep = self._finish(obs, reward, np.asarray(terminated, np.bool_), ended, info)
        self._check_obs(watch)  # again, for the observations after the resets of the adapter
        return timestep

    def _finite_rewards(self, env_reward: Any, *ends: Any) -> Array:
        """Return the rewards [N]; raise BadEnv unless they are finite, and both kinds of `ends` are true or false."""
        is_usual = are_usual(self._false, env_reward, *ends)
        # float32 would make larger numbers infinite.
        if is_usual and np.vdot(env_reward, env_reward) <= SQUARES:
            return env_reward
        check_results(self.spec.id, self._time - self._starts, env_reward, *ends)
        check_rewards(self._describe_step, np.asarray(env_reward))
        return np.asarray(env_reward, np.float64)

    def _check_obs(self, watch: Watch) -> None:
        """Raise BadEnv for NaN, infinite and invalid observations; warn of values far outside their bounds."""
        if watch.has_suspects():
            watch.examine(self._time - self._starts)

    def _check_info(self, info: Any, method: str) -> None:
        """Raise BadEnv if info is not a dictionary, or has a mask that the first reset did not have."""
        check_info(self.spec.id, info, method)
        if self._maskless and MASK in info:
            rows = np.flatnonzero(info.get(f"_{MASK}", self._true))
            check_late_mask(self._describe_step(int(rows[0]) if len(rows) else 0), info)

    def _describe_step(self, row: int) -> str:
        return f"{self.spec.id}, environment {row}, step {self._time - self._starts[row]} of its episode"

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, if no shorter limit is set; called before the first reset.

        This needs masked resets in every mode. An environment that ignores the mask is refused at the first such reset.
        """
        self._limit = min(self._limit, steps)
        self._deadline = self._starts.min() + self._limit

    def info(self, key: str) -> list[object]:
        """Return the value of `key` in the last step's `info` for each environment; None if it is absent.

        For an episode that ended it is the `info` of its last step, also if the row has been reset since.
        """
        values = values_of_rows(self._info, key, self._true)
        if "final_info" in self._info:
            last = values_of_rows(self._info["final_info"], key, self._true)
            reset = self._info.get("_final_info", self._true)
            values = [
                final if was_reset else value
                for value, final, was_reset in zip(values, last, reset, strict=True)
            ]
        return values

    def info_names(self) -> list[str]:
        """Return the keys of the last step's `info`."""
        return sorted(key for key in map(str, self._info) if not key.startswith(("_", "final_")))

    def running_returns(self) -> Array:
        """Return the sum of rewards of each running episode [N]."""
        return self._totals.copy()

    def translate(self, action: Array) -> object:
        """Convert actions [N, ...] of our interface to those of the environment."""
        return self._view.translate(action)

    def _rows_at_limit(self, excluded: Array) -> Array:
        """Return the mask of the rows at the step limit, except those in the mask `excluded`."""
        if self._time < self._deadline:
            return self._false
        return (self._time - self._starts >= self._limit) & ~excluded

    def _next_step(
        self,
        obs: Obs,
        reward: Array,
        terminated: Array,
        ended: Array,
        info: object,
    ) -> Timestep:
        """Return the Timestep; rows that ended in the last call were reset in this one and have no transition."""
        reset_rows = self._resetting
        valid = ~self._resetting
        reward[reset_rows] = 0
        self._totals[reset_rows] = 0
        self._starts[reset_rows] = self._time
        ended = ended & valid
        at_limit = self._rows_at_limit(ended)
        final = self._restart(obs, at_limit)
        self._resetting = ended
        self._has_resets = bool(ended.any())
        return self._timestep(
            obs,
            final,
            reward,
            terminated=terminated & valid,
            ended=ended | at_limit,
            is_first=reset_rows | at_limit,
            valid=valid,
        )

    def _same_step(
        self,
        obs: Obs,
        reward: Array,
        terminated: Array,
        ended: Array,
        info: object,
    ) -> Timestep:
        """Return the Timestep; rows that ended are reset already, and `info` has their final observations."""
        at_limit = self._rows_at_limit(ended)
        final = self._restart(obs, at_limit) if at_limit.any() else tree_map(np.copy, obs)
        done = ended | at_limit
        if ended.any():
            self._writer.write_successors(final, ended, info)
        return self._timestep(
            obs, final, reward, terminated=terminated, ended=done, is_first=done, valid=self._true
        )

    def _reset_ended(
        self,
        obs: Obs,
        reward: Array,
        terminated: Array,
        ended: Array,
        info: object,
    ) -> Timestep:
        """Reset the rows that ended, and return the Timestep."""
        done = ended | self._rows_at_limit(ended)
        final = self._restart(obs, done)
        return self._timestep(
            obs, final, reward, terminated=terminated, ended=done, is_first=done, valid=self._true
        )

    def _restart(self, obs: Obs, rows: Array) -> Obs:
        """Reset the rows of a mask and return the observations before; without such rows, `obs` itself."""
        if not rows.any():
            return obs
        last_obs = tree_map(np.copy, obs)
        # A new dictionary and a copy of the mask: Gymnasium changes the first, and an environment may keep both.
        value, info = self.venv.reset(options={"reset_mask": rows.copy()})
        self._check_info(info, "reset")
        self._writer.write(obs, value, info, self._true)
        if not self._verified and not rows.all():
            body = self._view.body
            check_masked_reset(self.spec.id, body(last_obs), body(obs), ~rows)
            self._verified = True
        merge(obs, ~rows, last_obs)
        return last_obs

    def _timestep(
        self,
        obs: Obs,
        final_obs: Obs,
        reward: Array,
        *,
        terminated: Array,
        ended: Array,
        is_first: Array,
        valid: Array,
    ) -> Timestep:
        """Return the Timestep of a call that ended or started episodes, with their returns and lengths."""
        rows = np.flatnonzero(ended)
        episodes = self._episodes(rows) if len(rows) else []
        self._totals[rows] = 0
        self._starts[rows] = self._time
        self._deadline = self._starts.min() + self._limit
        if episodes:
            check_last(final_obs, self.spec.id)
        return Timestep(
            obs=obs,
            final_obs=final_obs,
            reward=reward,
            terminated=terminated,
            truncated=ended & ~terminated,
            is_first=is_first,
            valid=valid,
            episodes=episodes,
            ended=bool(episodes),
            count=int(np.count_nonzero(valid)),
        )

    def _episodes(self, rows: Array) -> list[Episode]:
        """Return the episodes of the rows that end now."""
        count = self.spec.num_envs
        infos = infos_of_rows(self._info, rows, count)
        if "final_info" in self._info:
            # In SAME_STEP mode a row has been reset, and its last `info` is in "final_info".
            was_reset = self._info.get("_final_info", self._true)[rows].tolist()
            last = infos_of_rows(self._info["final_info"], rows, count)
            infos = [
                old if reset else new
                for old, new, reset in zip(last, infos, was_reset, strict=True)
            ]
        totals = self._totals[rows].tolist()
        lengths = (self._time - self._starts[rows]).tolist()
        columns = zip(rows.tolist(), totals, lengths, infos, strict=True)
        return [
            Episode(row, total, length, success(info), episode_numbers(info))
            for row, total, length, info in columns
        ]

    def state_dict(self) -> State:
        """Return the state of the environments and of running episodes; for an inexact environment only the reason."""
        state = capture_rows("venv", self.venv, self.spec)
        if "inexact" in state:
            return state
        return {
            **state,
            "lengths": self._time - self._starts,
            "totals": self._totals.copy(),
            "resetting": self._resetting.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Load a state into a new environment; the next call is `step`.

        Raises:
            BadEnv: the state was not captured ("inexact"); such an environment can only be reset.
        """
        check_state(state, len(state.get("lengths", ())), self.spec)
        self.reset(0)  # environments create some of their attributes at the first reset
        restore(self.venv, state["venv"])
        self._start_episodes(
            np.array(state["lengths"]), np.array(state["totals"]), np.array(state["resetting"])
        )

    def close(self) -> None:
        """Close the vector environment; an exception in its `close` does not end the run."""
        close_env(self.venv.close, self.spec.id)

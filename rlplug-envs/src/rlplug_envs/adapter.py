"""`Adapter`: any Gymnasium vector environment, in any of the three autoreset modes, as one kind of `Timestep`."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeAlias

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from rlplug_core.errors import BadEnv
from rlplug_core.types import MASK, Array, Episode, GymEnv, Obs, Spec, State, Timestep, tree_map
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.encoder import capture
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.capture.state_format import Uncapturable
from rlplug_envs.families.limits import registered
from rlplug_envs.observation_dtypes import ERRORS, SQUARES, DtypeMismatch, arrays, misfit
from rlplug_envs.shown import numbers, of_row, success
from rlplug_envs.spaces import View, lacking, masked, merge, put, same, write
from rlplug_envs.vector import check_last, check_state, refusal, row_seed, two_sets
from rlplug_envs.watch import (
    Watch,
    check_counted,
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

    The vector environment says in `metadata["autoreset_mode"]` when it resets a finished environment; one that does
    not is refused. In each mode `final_obs` is the true successor of the last action:

    - NEXT_STEP resets the row in the next call, and ignores its action: that call's row has `valid=False` and reward 0.
    - SAME_STEP resets it in the same call; the successor comes from `info["final_obs"]`. Gymnasium's own vector puts
      the environment's own array there before it resets, so an environment that writes into one array is refused.
    - DISABLED leaves it to us: one masked reset, checked at its first use, since some environments ignore the mask.

    Args:
        make: builds the vector environment.
        id: the name in messages and in `spec.id`.
        inexact: why its state cannot be captured, "" if it can; None finds out with `capture.self_test`.
    """

    def __init__(self, make: MakeVector, id: str = "", inexact: str | None = None) -> None:
        self.venv = venv = make()
        id = id or type(venv.unwrapped).__name__
        if isinstance(venv.unwrapped, AsyncVectorEnv):
            inexact = (
                f"{id}: its environments live in other processes, whose state cannot be captured"
            )
        if inexact is None:
            inexact = self_test(lambda: Adapter(make, id, inexact=""))
        self._finish = self._in_mode(id)
        said = self.first_info()
        check_info(id, said, "reset")
        self._view = View(
            venv.single_observation_space, venv.single_action_space, said, id, batched=True
        )
        rows = venv.num_envs
        self.action_space = venv.single_action_space
        self.spec = Spec(
            self._view.obs, self._view.action, rows, id, inexact=inexact, limit=registered(venv)
        )
        self._action_shape: tuple[int, ...] | None = (
            None  # until the first reset, so that `step` refuses
        )
        self._never = np.zeros(rows, np.bool_)
        self._always = np.ones(rows, np.bool_)
        self._now, self._next = two_sets(self.spec, self._never, self._always)
        self._maskless = not masked(self._view.obs)
        self._verified = False
        self._info: dict[str, Any] = {}  # of the last step
        self._limit: float = inf
        self._begin(np.zeros(rows, np.int64), np.zeros(rows), self._never)

    def first_info(self) -> dict[str, Any]:
        """Return the `info` of a reset; only a reset shows whether there is a mask of allowed actions."""
        return self.venv.reset(seed=0)[1]

    def _in_mode(self, id: str) -> Callable[..., Timestep]:
        mode = self.venv.metadata.get("autoreset_mode")
        if mode is AutoresetMode.NEXT_STEP:
            return self._next_step
        if mode is AutoresetMode.SAME_STEP:
            if isinstance(self.venv.unwrapped, SyncVectorEnv):
                _check_own(self.venv.unwrapped.envs[0], id)
            return self._same_step
        if mode is AutoresetMode.DISABLED:
            return self._disabled
        raise BadEnv(
            f"{id}: the vector environment does not say when it resets one whose episode ended; set "
            "metadata['autoreset_mode'] to gymnasium.vector.AutoresetMode.NEXT_STEP, SAME_STEP or DISABLED in its class"
        )

    def _begin(self, lengths: Array, totals: Array, resetting: Array) -> None:
        """Set the running episodes, and which rows a NEXT_STEP environment resets in its next call."""
        self._time = 0
        self._begun = -lengths
        self._deadline = self._begun.min() + self._limit
        self._totals = totals
        self._resetting = resetting
        self._loud = bool(resetting.any())

    def reset(self, seed: int) -> Timestep:
        """Start every environment; each from its own seed if the vector environment takes several."""
        num_envs = self.spec.num_envs
        never = self._never
        self._begin(np.zeros(num_envs, np.int64), np.zeros(num_envs), never)
        self._action_shape = self._view.action_shape(num_envs)
        self._now, self._next = self._next, self._now
        _, obs, reward, watch = self._now
        reward[:] = 0
        each = isinstance(self.venv.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        seeds: Any = [row_seed(seed, row) for row in range(num_envs)] if each else row_seed(seed, 0)
        value, info = self.venv.reset(seed=seeds)
        self._check_info(info, "reset")
        self._write(obs, value, info, never)
        self._look(watch)
        return Timestep.opening(obs, reward, self._always, never)

    def step(self, action: Array) -> Timestep:
        """Step every environment with its action [N, ...]."""
        if action.shape != self._action_shape:
            raise refusal(self.spec.id, action, self._action_shape)
        self._now, self._next = self._next, self._now
        quiet, obs, reward, watch = self._now
        to_env = self._view.to_env
        value, gain, terminated, truncated, info = self.venv.step(
            action if to_env is None else to_env(action)
        )
        self._info = info
        self._time += 1
        if info.__class__ is not dict or (self._maskless and MASK in info):
            self._check_info(info, "step")
        if not _usual(self._never, gain, terminated, truncated):
            check_results(self.spec.id, self._time - self._begun, gain, terminated, truncated)
            check_rewards(self._when, np.asarray(gain))
            gain = np.asarray(gain, np.float64)
        if not np.vdot(gain, gain) <= SQUARES:  # before float32 makes larger numbers infinite
            check_rewards(self._when, gain)
        ended = np.logical_or(terminated, truncated)
        loud = self._loud or bool(np.count_nonzero(ended))
        self._write(obs, value, info, ended | self._resetting if loud else self._never)
        reward[:] = gain
        self._totals += gain
        self._look(watch)
        if not loud and self._time < self._deadline:
            return quiet
        now = self._finish(obs, reward, np.asarray(terminated, np.bool_), ended, info)
        self._look(watch)  # at what resets of ours gave
        return now

    def _look(self, watch: Watch) -> None:
        """Raise BadEnv for NaN, infinity and wrong states; warn of numbers far outside their bounds."""
        if watch.suspects():
            watch.examine(self._time - self._begun)

    def _check_info(self, info: Any, method: str) -> None:
        """Raise BadEnv if info is not a dictionary, or has a mask that the first reset did not have."""
        check_info(self.spec.id, info, method)
        if self._maskless and MASK in info:
            told = np.flatnonzero(info.get(f"_{MASK}", self._always))
            check_late_mask(self._when(int(told[0]) if len(told) else 0), info)

    def _when(self, row: int) -> str:
        return f"{self.spec.id}, environment {row}, step {self._time - self._begun[row]} of its episode"

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, or earlier if they already are; called before the first reset.

        It takes a masked reset, in every mode; an environment that ignores the mask is refused when it first matters.
        """
        self._limit = min(self._limit, steps)
        self._deadline = self._begun.min() + self._limit

    def info(self, key: str) -> list[Any]:
        """Return the value of `key` in the last step's `info` for each environment; None if it is absent."""
        values = self._info.get(key)
        said = self._info.get(f"_{key}", self._always)
        if said is self._always and isinstance(values, np.ndarray) and values.ndim == 1:
            told: list[Any] = values.tolist()
            return told
        return [
            None if values is None or not said[row] else values[row]
            for row in range(self.spec.num_envs)
        ]

    def running_returns(self) -> Array:
        """The sum of rewards of each running episode [N]."""
        return self._totals.copy()

    def translate(self, action: Array) -> object:
        """Canonical actions [N, ...] as the environment takes them."""
        return action if self._view.to_env is None else self._view.to_env(action)

    def _due(self, over: Array) -> Array:
        """The rows at their limit, except those of the mask `over`."""
        if self._time < self._deadline:
            return self._never
        return (self._time - self._begun >= self._limit) & ~over

    def _next_step(
        self, obs: Obs, reward: Array, terminated: Array, ended: Array, info: object
    ) -> Timestep:
        """Rows that ended in the last call were reset in this one, and hold no transition."""
        opened = self._resetting
        valid = ~self._resetting
        reward[opened], self._totals[opened], self._begun[opened] = 0, 0, self._time
        ended = ended & valid
        due = self._due(ended)
        final = self._restart(obs, due)
        self._resetting = ended
        self._loud = bool(ended.any())
        return self._timestep(
            obs,
            final,
            reward,
            terminated=terminated & valid,
            ended=ended | due,
            is_first=opened | due,
            valid=valid,
        )

    def _same_step(
        self, obs: Obs, reward: Array, terminated: Array, ended: Array, info: object
    ) -> Timestep:
        """Rows that ended are reset already; their true successors are in `info`."""
        due = self._due(ended)
        final = self._restart(obs, due) if due.any() else tree_map(np.copy, obs)
        over = ended | due
        if ended.any():
            self._successors(final, ended, info)
        return self._timestep(
            obs, final, reward, terminated=terminated, ended=over, is_first=over, valid=self._always
        )

    def _successors(self, final_obs: Obs, ended: Array, info: Any) -> None:
        """Put the true successors of the rows that ended, which `info` holds, into `final_obs`."""
        if "final_obs" not in info:
            raise BadEnv(
                f"{self.spec.id}: its mode is SAME_STEP, but info has no 'final_obs' where an episode ended"
            )
        body = self._view.body(final_obs)
        successors = info["final_obs"]
        if isinstance(successors, list) or (
            isinstance(successors, np.ndarray) and successors.dtype == object
        ):
            for row in np.flatnonzero(ended).tolist():
                put(body, row, successors[row], self._when)
        else:
            try:
                merge(body, ended, successors)
            except DtypeMismatch as error:
                raise self._refusal(error, np.flatnonzero(ended)) from None
        check_counted(self._when, self.spec.obs, final_obs)
        if self._view.masked:
            masks = np.broadcast_to(
                self._mask(info.get("final_info", {}), self._always), final_obs[MASK].shape
            )
            merge(final_obs[MASK], ended, masks)

    def _disabled(
        self, obs: Obs, reward: Array, terminated: Array, ended: Array, info: object
    ) -> Timestep:
        """Rows that ended are reset by us."""
        over = ended | self._due(ended)
        final = self._restart(obs, over)
        return self._timestep(
            obs, final, reward, terminated=terminated, ended=over, is_first=over, valid=self._always
        )

    def _restart(self, obs: Obs, rows: Array) -> Obs:
        """Reset the rows of a mask; return the earlier observations, the same object if no row is reset."""
        if not rows.any():
            return obs
        before = tree_map(np.copy, obs)
        # A fresh dictionary and mask: Gymnasium pops the one, and both may be kept.
        value, info = self.venv.reset(options={"reset_mask": rows.copy()})
        self._check_info(info, "reset")
        self._write(obs, value, info, self._always)
        self._verify(before, obs, ~rows)
        merge(obs, ~rows, before)
        return before

    def _verify(self, before: Obs, after: Obs, running: Array) -> None:
        """A masked reset must leave the rows outside the mask unchanged; without such rows nothing is proven yet."""
        if self._verified or not running.any():
            return
        if not same(self._view.body(before), self._view.body(after), running):
            raise BadEnv(
                f"{self.spec.id}: reset(options={{'reset_mask': …}}) also changed environments outside the mask, "
                "which cuts running episodes; honor the mask in its reset, or build it in the mode SAME_STEP or "
                "NEXT_STEP and without a time limit of ours"
            )
        self._verified = True

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
        """Return the Timestep of a call in which episodes ended or started; close the statistics of ended ones."""
        time = self._time
        rows = np.flatnonzero(ended)
        episodes = [self._episode(int(row)) for row in rows]
        self._totals[rows], self._begun[rows] = 0, time
        self._deadline = self._begun.min() + self._limit
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

    def _episode(self, row: int) -> Episode:
        """The episode of a row that ends now; rows that were reset already have their last `info` apart."""
        apart = "final_info" in self._info and self._info.get("_final_info", self._always)[row]
        info = of_row(self._info["final_info"] if apart else self._info, row, self.spec.num_envs)
        return Episode(
            row,
            float(self._totals[row]),
            int(self._time - self._begun[row]),
            success(info),
            numbers(info),
        )

    def _write(self, obs: Obs, value: Any, info: object, maskless: Array) -> None:
        """Write the observations of a call; the rows `maskless` [N] may have come without a mask."""
        body = self._view.body(obs)
        try:
            write(body, value)
        except ERRORS:
            if found := misfit(body, value, batched=True):
                raise self._refusal(found, np.arange(self.spec.num_envs)) from None
            raise
        if self._view.masked:
            obs[MASK][...] = self._mask(info, maskless)

    def _refusal(self, found: DtypeMismatch, rows: Array) -> BadEnv:
        """Return the error for observations that do not fit; `rows` are their row numbers."""
        return BadEnv(
            f"{self._when(int(rows[found.index[0]])) if found.index else self.spec.id}: {found}"
        )

    def _mask(self, info: Any, maskless: Array) -> Any:
        """The masks of allowed actions; a row without one, which Gymnasium fills with zeros, allows everything."""
        given = self._view.mask(info, bool(maskless.all()))
        rows = info.get(f"_{MASK}", self._always)
        for row in np.flatnonzero(~rows & ~maskless).tolist():
            raise lacking(self._when(row))
        return (
            np.where(rows.reshape(-1, *[1] * (np.ndim(given) - 1)), given, 1)
            if MASK in info
            else given
        )

    def state_dict(self) -> State:
        """The vector's state and the running episodes; for an inexact environment only the reason."""
        if self.spec.inexact:
            return {"inexact": self.spec.inexact}
        try:
            venv = capture(self.venv)
        except Uncapturable as error:
            return {"inexact": f"{self.spec.id}: {error}"}
        lengths = self._time - self._begun
        return {
            "venv": venv,
            "lengths": lengths,
            "totals": self._totals.copy(),
            "resetting": self._resetting.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state; works on a fresh environment, and the next call is `step`.

        Raises BadEnv for a state that was not captured ("inexact"): such an environment can only be reset.
        """
        check_state(state, len(state.get("lengths", ())), self.spec)
        self.reset(0)  # what environments make on their first reset must exist before it is filled
        restore(self.venv, state["venv"])
        self._begin(
            np.array(state["lengths"]), np.array(state["totals"]), np.array(state["resetting"])
        )

    def close(self) -> None:
        """Close the vector environment; if it raises in `close`, that ends nothing."""
        close_env(self.venv.close, self.spec.id)


def _check_own(env: GymEnv, id: str) -> None:
    """Raise BadEnv if two resets give the same array: the second changes the result of the first."""
    first, second = (env.reset(seed=0)[0] for _ in range(2))
    if any(
        np.may_share_memory(one, other)
        for one, other in zip(arrays(first), arrays(second), strict=False)
    ):
        raise BadEnv(
            f"{id}: its environments write each observation into the same array, which a reset in the mode SAME_STEP "
            "changes before the last observation of an episode is read; return a copy, or take the mode NEXT_STEP"
        )


def _usual(flags: Array, gain: Any, *ends: Any) -> bool:
    """Return whether these are arrays [N] of the types that need no second look."""
    return (
        gain.__class__ is np.ndarray
        and gain.shape == flags.shape
        and gain.dtype.kind in "fiu"
        and all(
            end.__class__ is np.ndarray and end.shape == flags.shape and end.dtype == flags.dtype
            for end in ends
        )
    )

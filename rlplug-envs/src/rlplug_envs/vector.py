"""`SerialEnvs`: plain Gymnasium environments, stepped one after the other, as one vector.

A step allocates nothing while no episode ends: two sets of arrays alternate, each with a ready-made `Timestep`. A row
is reset in the step that ends its episode (SAME_STEP), so every row of every step is a valid transition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from rlplug_core.errors import BadEnv
from rlplug_core.protocols import Show
from rlplug_core.types import MASK, Array, Episode, GymEnv, Obs, Spec, State, Timestep, tree_map
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.self_test import self_test
from rlplug_envs.families.limits import limit_of
from rlplug_envs.goals import with_goals
from rlplug_envs.observation_dtypes import INTEGERS, LARGEST, LEAST, fit
from rlplug_envs.raw_return import Wrap, find_raw_return, wrap_single
from rlplug_envs.rows import (
    action_converter,
    action_error,
    capture_rows,
    check_state,
    double_buffer,
    frame_rate,
    row_seed,
)
from rlplug_envs.settings import Settings
from rlplug_envs.shown import Shown
from rlplug_envs.spaces import INT64, View, masked, put
from rlplug_envs.step_info import episode_numbers, success
from rlplug_envs.watch import (
    FLAGS,
    NUMBERS,
    Watch,
    check_info,
    check_late_mask,
    check_reset,
    check_result,
    check_reward,
    check_signature,
    close_env,
    explain_step_error,
)

Make: TypeAlias = Callable[[], GymEnv]

#: Why environments inside wrappers cannot be captured, by registry entry or function; tested once per process.
_TESTED: dict[tuple[object, Wrap], str] = {}


class SerialEnvs:
    """A serial SAME_STEP vector of Gymnasium environments; implements `rlplug_core.protocols.Env`.

        env = SerialEnvs(lambda: gymnasium.make("Pendulum-v1", disable_env_checker=True), num_envs=8, id="Pendulum-v1")
        timestep = env.reset(seed=1)
        timestep = env.step(np.zeros((8, 1), np.float32))

    `rlplug_envs.spaces` describes observations, actions, and the place of `info["action_mask"]`.

    Args:
        make: builds one environment; called `num_envs` times.
        num_envs: the number of environments.
        id: the name in messages and in `spec.id`.
        limit: truncate episodes after this many steps; 0 leaves that to the environment. It costs nothing here;
            Gymnasium's TimeLimit wrapper is one more call per environment and step.
        inexact: why its state cannot be captured, "" if it can, None to test it with `capture.self_test`.
    """

    def __init__(
        self,
        make: Make,
        num_envs: int,
        id: str = "",
        limit: int = 0,
        inexact: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise BadEnv(f"{id}: num_envs is {num_envs}; it must be at least 1")
        if inexact is None:
            test_limit = min(limit, 20)
            inexact = self_test(lambda: SerialEnvs(make, 1, id, test_limit, inexact=""))
        self._make = make
        self.envs = [make() for _ in range(num_envs)]
        env = self.envs[0]
        # Only a reset shows whether there is a mask; the first real reset seeds this row again.
        id = id or type(env.unwrapped).__name__
        check_signature(id, env)
        _, info = check_reset(id, env.reset(seed=0))
        self._view = view = View(env.observation_space, env.action_space, info, id)
        known_limit = min(filter(None, (limit, limit_of(env))), default=0)
        spec = Spec(view.obs, view.action, num_envs, id, inexact=inexact, limit=known_limit)
        self.spec = with_goals(spec, env)
        self.action_space = env.action_space
        self._raw_returns = [raw for raw in map(find_raw_return, self.envs) if raw]  # all or none
        self._steps = [env.step for env in self.envs]
        self._convert_actions = action_converter(env.action_space, view.to_env)
        self._read_formats(view)
        self._allocate(num_envs)
        self._limit = limit or inf
        self._first_row = 0
        self._start_episodes([0] * num_envs, [0.0] * num_envs)

    def _read_formats(self, view: View) -> None:
        """Store the formats of observations that `step` reads."""
        self._flat = not isinstance(view.obs, spaces.Dict)
        self._shape = view.obs.shape or ()
        self._dtype = np.dtype(view.obs.dtype)
        # Classes of observations, besides arrays, that need no conversion.
        self._unconverted_classes = (
            INTEGERS if self._shape == () and self._dtype is INT64 else frozenset[type]()
        )
        self._maskless = not masked(view.obs)

    def _allocate(self, num_envs: int) -> None:
        """Make the arrays of rows, before the first reset."""
        self._settings = Settings(num_envs)
        self._infos: list[dict[str, object]] = [{}] * num_envs  # of the last step of each row
        #: None before the first reset, so that `step` refuses every action.
        self._action_shape: tuple[int, ...] | None = None
        self._false = np.zeros(num_envs, np.bool_)
        self._true = np.ones(num_envs, np.bool_)
        self._now, self._next = double_buffer(self.spec, self._false, self._true)

    def _start_episodes(self, lengths: list[int], totals: list[float]) -> None:
        """Set the lengths and returns of the running episodes."""
        self._time = 0
        self._starts = [-length for length in lengths]
        self._deadline = min(self._starts) + self._limit
        self._totals = totals

    def reset(self, seed: int) -> Timestep:
        """Start every environment from its own seed, derived from `seed`. No row holds a transition yet."""
        num_envs = self.spec.num_envs
        never = self._false
        self._start_episodes([0] * num_envs, [0.0] * num_envs)
        self._action_shape = self._view.action_shape(num_envs)
        self._now, self._next = self._next, self._now
        _, obs, reward, watch = self._now
        reward[:] = 0
        for row, env in enumerate(self.envs):
            self._settings.apply(row, env)
            self._write_first(obs, row, env.reset(seed=row_seed(seed, self._first_row + row)))
        self._check_obs(watch)
        return Timestep.opening(obs, reward, self._true, never)

    def step(self, action: Array) -> Timestep:
        """Step every environment with its action [N, ...]; reset it in the same call if its episode ends."""
        if action.shape != self._action_shape:
            raise action_error(self.spec.id, action, self._action_shape)
        self._now, self._next = self._next, self._now
        quiet, obs, reward, watch = self._now
        ended = self._step_rows(action, obs, reward)
        self._time += 1
        for measure, part, largest in watch.parts:  # `watch.has_suspects()` inline saves two calls
            if not measure(part) <= largest:
                self._check_obs(watch)
        if not ended and self._time < self._deadline:
            return quiet
        return self._end_timestep(obs, reward, ended, watch)

    def _step_rows(
        self,
        action: Array,
        obs: Obs,
        rewards: Array,
    ) -> dict[int, bool]:
        """Step every environment and write its results; return whether it terminated for each row that ended."""
        actions = self._convert_actions(action)
        flat = self._flat
        shape = self._shape
        dtype = self._dtype
        totals = self._totals
        infos = self._infos
        unconverted = self._unconverted_classes
        maskless = self._maskless
        ended: dict[int, bool] = {}
        result: Any = ()
        try:
            for row, step in enumerate(self._steps):
                result = step(actions[row])
                value, reward, terminated, truncated, info = result
                if reward.__class__ not in NUMBERS or not LEAST <= reward <= LARGEST:
                    reward = check_reward(self._describe_step(row), reward, terminated, truncated)
                if info.__class__ is not dict or (maskless and MASK in info):
                    self._check_info(row, info)
                if not flat:
                    self._write(obs, row, value, info, terminated or truncated)
                elif (
                    value.__class__ is np.ndarray and value.dtype is dtype and value.shape == shape
                ):
                    obs[row] = value
                else:
                    obs[row] = value if value.__class__ in unconverted else fit(value, shape, dtype)
                rewards[row] = reward
                totals[row] += float(reward)
                infos[row] = info
                if terminated or truncated:
                    if terminated.__class__ not in FLAGS or truncated.__class__ not in FLAGS:
                        check_result(self._describe_step(row), reward, terminated, truncated)
                    ended[row] = bool(terminated)
        except (ValueError, TypeError, OverflowError) as error:
            explain_step_error(self._describe_step(row), obs, error, result)
            raise
        return ended

    def _check_obs(self, watch: Watch) -> None:
        """Raise BadEnv for NaN, infinite and invalid observations; warn of values far outside their bounds."""
        if watch.has_suspects():
            watch.examine([self._time - start for start in self._starts])

    def _check_info(self, row: int, info: Any) -> None:
        """Raise BadEnv if info is not a dictionary, or has a mask that the first reset did not have."""
        check_info(self._describe_step(row), info, "step")
        if self._maskless:
            check_late_mask(self._describe_step(row), info)

    def _describe_step(self, row: int) -> str:
        """Return the environment and its step, for a message."""
        return self._describe_row(row, self._time + 1 - self._starts[row])

    def _describe_reset(self, row: int) -> str:
        """Return which environment is being reset, for a message."""
        return self._describe_row(row, 0)

    def _describe_row(self, row: int, step: int) -> str:
        return f"{self.spec.id}, environment {self._first_row + row}, step {step} of its episode"

    def _end_timestep(
        self,
        obs: Obs,
        reward: Array,
        ended: dict[int, bool],
        watch: Watch,
    ) -> Timestep:
        """Return the Timestep of a step that ended episodes; `ended` maps rows to whether they terminated."""
        for row, start in enumerate(self._starts):
            if self._time - start >= self._limit:
                ended.setdefault(row, False)
        final = tree_map(np.copy, obs)
        episodes = self._end_episodes(sorted(ended), obs)
        self._check_obs(watch)  # again, for the first observations of new episodes
        is_first = np.zeros(self.spec.num_envs, np.bool_)
        terminated = is_first.copy()
        for row, has_terminated in ended.items():
            is_first[row] = True
            terminated[row] = has_terminated
        return Timestep(
            obs=obs,
            final_obs=final,
            reward=reward,
            terminated=terminated,
            truncated=is_first & ~terminated,
            is_first=is_first,
            valid=self._true,
            episodes=episodes,
            ended=True,
            count=self.spec.num_envs,
        )

    def _end_episodes(self, rows: list[int], obs: Obs) -> list[Episode]:
        """Return the episodes of these rows, and start new ones."""
        time = self._time
        totals = self.running_returns().tolist()
        episodes = []
        for row in rows:
            # A copy, because the reset may change the environment's dictionary.
            info = self._infos[row] = dict(self._infos[row])
            length = time - self._starts[row]
            episodes.append(Episode(row, totals[row], length, success(info), episode_numbers(info)))
            self._totals[row] = 0.0
            self._starts[row] = time
            self._settings.apply(row, self.envs[row])
            self._write_first(obs, row, self.envs[row].reset())
        self._deadline = min(self._starts) + self._limit
        return episodes

    def _write_first(self, obs: Obs, row: int, result: object) -> None:
        """Write a first observation, and check its info."""
        value, info = check_reset(self._describe_reset(row), result)
        if self._maskless:
            check_late_mask(self._describe_reset(row), info)
        if self._raw_returns:
            self._raw_returns[row].total = 0.0
        put(self._view.body(obs), row, value, self._describe_reset)
        if self._view.masked:
            obs[MASK][row] = self._view.mask(info, False)

    def _write(
        self,
        obs: Obs,
        row: int,
        value: object,
        info: dict[str, object],
        ended: bool,
    ) -> None:
        put(self._view.body(obs), row, value, self._describe_step)
        if self._view.masked:
            obs[MASK][row] = self._view.mask(info, ended)

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, if no shorter limit is set; called before the first reset."""
        self._limit = min(self._limit, steps)
        self._deadline = min(self._starts) + self._limit

    def configure(self, settings: Mapping[str, object]) -> None:
        """Set attributes, in each environment from its next reset on."""
        self._settings.set_later(settings, self.envs[0], self.spec.id)

    def part(self, first: int) -> None:
        """Use the seeds of a larger vector, in which its first environment has the number `first`."""
        self._first_row = first
        for *_, watch in (self._now, self._next):
            watch.first = first

    def inside(self, wrap: Wrap) -> SerialEnvs:
        """Return the same environments, each wrapped by `wrap`; they replace this vector before the first reset.

        A time limit counts their own steps; a wrapper may take several at once.
        """
        id = self.spec.id
        make = self._make
        envs = iter(self.envs)
        wrap_env = wrap_single(wrap, self.spec, self._limit)
        limit = 0 if self._limit == inf else min(int(self._limit), 20)
        spec = self.envs[0].spec
        key = (repr(spec) if spec else make, wrap)
        if key not in _TESTED:
            _TESTED[key] = self_test(lambda: SerialEnvs(lambda: wrap_env(make()), 1, id, limit, ""))
        vector = SerialEnvs(lambda: wrap_env(next(envs)), len(self.envs), id, inexact=_TESTED[key])
        vector._make = lambda: wrap_env(make())
        return vector

    def info(self, key: str) -> list[Any]:
        """Return the value of `key` in the last step's `info` for each environment; None if it is absent."""
        return [info.get(key) for info in self._infos]

    def info_names(self) -> list[str]:
        """Return the keys of the last step's `info`, of all environments together."""
        return sorted({str(key) for info in self._infos for key in info})

    @property
    def fps(self) -> float:
        """Return the frames per second of the environments' metadata; 30 by default."""
        return frame_rate(self.envs[0].metadata)

    def show(self, show: Show) -> None:
        """Show every frame of the first environment; called before the first reset."""
        shown = Shown(self.envs[0], show)
        self.envs[0], self._steps[0] = shown, shown.step

    def running_returns(self) -> Array:
        """Return the sum of rewards of each running episode [N], below the wrappers that `--wrap` put inside."""
        raw_returns = self._raw_returns
        if raw_returns and all(raw_return.is_sum for raw_return in raw_returns):
            return np.array([raw_return.total for raw_return in raw_returns])
        return np.array(self._totals)

    def translate(self, action: Array) -> object:
        """Return canonical actions [N, ...] in the form that the environments take."""
        return self._view.translate(action)

    def state_dict(self) -> State:
        """Return the environments' states and running episodes; for an inexact one only the reason."""
        state = capture_rows("envs", self.envs, self.spec)
        if "inexact" in state:
            return state
        return {
            **state,
            "lengths": [self._time - start for start in self._starts],
            "totals": self.running_returns().tolist(),
            **self._settings.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state; works on a fresh environment, and the next call is `step`.

        Raises:
            BadEnv: the state was not captured ("inexact"); such an environment can only be reset.
        """
        check_state(state, len(state.get("lengths", ())), self.spec)
        # Attributes that environments create in their first reset must exist before they are restored.
        self.reset(0)
        self._settings.load_state_dict(state, self.envs)
        restore(self.envs, state["envs"])
        self._start_episodes(list(state["lengths"]), list(state["totals"]))
        if self._raw_returns:
            for raw_return, total in zip(self._raw_returns, state["totals"], strict=True):
                raw_return.total = total

    def close(self) -> None:
        """Close every environment, even if the `close` of one raises."""
        for env in self.envs:
            close_env(env.close, self.spec.id)

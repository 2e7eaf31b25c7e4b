"""`TensorAdapter`: converts any vector of environments with torch tensors to our interface, without host copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from rlplug_core.arrays import to_device, to_host
from rlplug_core.errors import BadEnv, PluginError, UsageError
from rlplug_core.plugins.device_episodes import EndedRows
from rlplug_core.plugins.env_base import EnvBase
from rlplug_core.plugins.tensor_world import select_rows
from rlplug_core.protocols import Show, Stateful, TensorEnv
from rlplug_core.types import Array, Obs, Space, Spec, State, Timestep, tree_map
from rlplug_envs.rows import check_state, row_seed
from rlplug_envs.spaces import canonical_action, canonical_obs
from rlplug_envs.step_info import SUCCESS
from rlplug_envs.tensors.actions import to_tensor_actions

#: The names of the last observations of episodes in `info`: Gymnasium's, and an older one that simulators use.
FINALS = ("final_obs", "final_observation")


@runtime_checkable
class SupportsRender(Protocol):
    """An environment that draws its rows."""

    def render(self, row: int) -> Array:
        """Return a picture [H, W, 3] uint8 of one row."""
        ...


class TensorAdapter(EnvBase):
    """Adapts a `TensorEnv` to `rlplug_core.protocols.Env`; everything stays on its device.

    `final_obs` means the same in each mode as in `rlplug_envs.adapter.Adapter`. SAME_STEP and DISABLED read nothing
    back; NEXT_STEP reads one number a step, because only the device knows how many rows were reset.

    Args:
        make: makes the vector environment.
        id: the name in messages and in `spec.id`.
        inexact: why its state cannot be captured, "" if it can; None means that it can if it has `state_dict`.
    """

    def __init__(
        self,
        make: Callable[[], TensorEnv],
        id: str = "",
        inexact: str | None = None,
    ) -> None:
        self.env = env = make()
        id = id or type(env).__name__
        self.device = torch.device(env.device)
        self.mode = _mode_of(env, id)
        if inexact is None:
            inexact = "" if isinstance(env, Stateful) else f"{id}: it has no state_dict"
        action, _ = canonical_action(env.single_action_space, id)
        self._to_env = to_tensor_actions(env.single_action_space, self.device, id)
        self.spec = Spec(
            canonical_obs(env.single_observation_space, id),
            action,
            env.num_envs,
            id,
            inexact=inexact,
            limit=int(getattr(env, "time_limit", 0)),
            device=self.device,
        )
        self._false = torch.zeros(env.num_envs, dtype=torch.bool, device=self.device)
        self._true = ~self._false
        self._show: Show | None = None
        self._forget_episodes()

    def _forget_episodes(self) -> None:
        """Forget the running episodes."""
        self._lengths = torch.zeros(self.spec.num_envs, dtype=torch.int64, device=self.device)
        self._totals = torch.zeros(self.spec.num_envs, dtype=torch.float64, device=self.device)
        self._resetting = self._false
        self._info: State = {}
        self._ended = self._false
        self._probe = torch.zeros((), device=self.device)

    def reset(self, seed: int) -> Timestep:
        """Reset every row, by one seed for all of them."""
        self._forget_episodes()
        obs, _ = self.env.reset(seed=row_seed(seed, 0))
        obs = self._canonical(obs)
        if self._show is not None:
            self._show(True, self._picture)
        reward = torch.zeros(self.spec.num_envs, device=self.device)
        return Timestep.opening(obs, _array(reward), _array(self._true), _array(self._false))

    def step(self, action: Array) -> Timestep:
        """Step every row with its action [N, ...], a tensor on the device."""
        obs, reward, terminated, truncated = self._step_env(action)
        valid = self._true
        count = self.spec.num_envs
        if self.mode is AutoresetMode.NEXT_STEP:
            valid = ~self._resetting
            count = int(valid.sum())
            reward = reward * valid
            terminated = terminated * valid
            truncated = truncated * valid
        truncated = truncated & ~terminated
        self._ended = ended = terminated | truncated
        opens = self._resetting if self.mode is AutoresetMode.NEXT_STEP else ended
        final_obs, obs = self._successors(obs, ended)
        self._resetting = ended
        timestep = Timestep(
            obs=obs,
            final_obs=final_obs,
            reward=_array(reward),
            terminated=_array(terminated),
            truncated=_array(truncated),
            is_first=_array(opens),
            valid=_array(valid),
            episodes=self._add_step(reward, valid, ended, self._success()),
            ended=True,
            count=count,
        )
        if self._show is not None:
            self._show(bool(timestep.is_first[0]), self._picture)
        return timestep

    def _step_env(self, action: Array) -> tuple[Obs, Tensor, Tensor, Tensor]:
        """Step the environment; return the checked observations, float32 rewards, and both kinds of ends."""
        self._check_action(action)
        obs, reward, terminated, truncated, self._info = self.env.step(self._to_env(action))
        obs = self._canonical(obs)
        self._check_tensors(reward=reward, terminated=terminated, truncated=truncated)
        reward = reward.to(torch.float32)
        self._update_probe(obs, reward)
        return obs, reward, terminated, truncated

    def _check_action(self, action: object) -> None:
        """Raise PluginError if the actions of an agent are not a tensor."""
        if not isinstance(action, Tensor):
            raise PluginError(
                f"{self.spec.id} takes actions as tensors on {self.device}, and the agent of this algorithm has "
                f"returned actions of type {type(action).__name__}; use another algorithm, or an environment on the "
                "host; if the agent is yours, compute with torch if its observations are tensors"
            )

    def show(self, show: Show) -> None:
        """Call `show` for the first row after every reset and step; the last frame of an episode is not drawn."""
        if not isinstance(self.env, SupportsRender):
            super().show(show)
        self._show = show

    def _picture(self) -> Array:
        assert isinstance(self.env, SupportsRender)
        return self.env.render(0)

    def _add_step(
        self,
        reward: Tensor,
        valid: Tensor,
        ended: Tensor,
        success: Tensor | None,
    ) -> EndedRows:
        """Add a step to the running episodes, and return those that ended; the rest continues."""
        lengths = self._lengths + valid
        totals = self._totals + reward
        self._lengths = lengths.masked_fill(ended, 0)
        self._totals = totals.masked_fill(ended, 0)
        return EndedRows(
            ended,
            totals=totals,
            lengths=lengths,
            success=success,
            probe=self._probe,
            id=self.spec.id,
        )

    def _successors(self, obs: Obs, ended: Tensor) -> tuple[Obs, Obs]:
        """Return the true successors of the actions, and the observations for the next ones."""
        if self.mode is AutoresetMode.NEXT_STEP:
            return obs, obs
        if self.mode is AutoresetMode.DISABLED:
            fresh, _ = self.env.reset(options={"reset_mask": ended})
            return obs, select_rows(ended, self._canonical(fresh), obs)
        name = next((name for name in FINALS if name in self._info), None)
        if name is None:  # simulators leave it out of steps without an end
            self._probe = torch.where(ended.any(), torch.nan, self._probe)
            return obs, obs
        return select_rows(ended, self._canonical(self._info[name]), obs), obs

    def _update_probe(self, obs: Obs, reward: Tensor) -> None:
        """Make the probe NaN if an observation or a reward is not finite; `EndedRows` reads it later."""
        tensors = [reward]
        tree_map(tensors.append, obs)
        for tensor in tensors:
            if tensor.is_floating_point():
                self._probe = self._probe + (tensor * 0).sum()

    def _canonical(self, obs: Obs) -> Obs:
        """Return observations of the canonical space: float64 becomes float32, a tuple a dictionary."""
        if isinstance(obs, tuple):
            obs = {str(number): part for number, part in enumerate(obs)}
        if isinstance(obs, dict):
            return {name: self._canonical(part) for name, part in obs.items()}
        self._check_tensors(observation=obs)
        return obs.to(torch.float32) if obs.is_floating_point() else obs

    def _check_tensors(self, **values: object) -> None:
        """Raise BadEnv if a value of a step is not a tensor."""
        for name, value in values.items():
            if not isinstance(value, Tensor):
                raise BadEnv(
                    f"{self.spec.id}: it declares the device {self.device}, but its {name} is of type "
                    f"{type(value).__name__}; return tensors, or leave out 'device'"
                )

    @property
    def action_space(self) -> Space:
        return self.env.single_action_space

    def row_bytes(self) -> int:
        """Return the bytes of one row's state, if the environment knows its state; this resets the rows."""
        env_row_bytes = getattr(self.env, "row_bytes", None)
        if env_row_bytes is not None:
            return int(env_row_bytes())
        if not isinstance(self.env, Stateful):
            return 0
        self.env.reset(seed=0)
        sizes: list[int] = []
        rows = self.spec.num_envs

        def add(part: object) -> None:
            if isinstance(part, Tensor) and part.shape[:1] == (rows,):
                sizes.append(part.nbytes // rows)

        tree_map(add, self.env.state_dict())
        return sum(sizes)

    def info_tensor(self, key: str) -> Tensor | None:
        """Return the values [N, ...] of `key` in the last step's `info`; None if it has no such tensor.

        For an episode that ended they are those of its last step, also if the row has been reset since.
        """
        current = self._info.get(key)
        final_info = self._info.get("final_info")
        last = final_info.get(key) if isinstance(final_info, dict) else None
        if isinstance(current, Tensor) and isinstance(last, Tensor):
            return cast("Tensor", select_rows(self._ended, last, current))
        return next((values for values in (current, last) if isinstance(values, Tensor)), None)

    def info(self, key: str) -> list[Any]:
        """Return the value of `key` in the last step's `info` for each row; waits for the device."""
        values = self.info_tensor(key)
        return super().info(key) if values is None else list(to_host(values))

    def info_names(self) -> list[str]:
        """Return the keys of the last step's `info`."""
        return sorted(key for key in map(str, self._info) if not key.startswith(("_", "final_")))

    def _success(self) -> Tensor | None:
        """Return the mask [N] of rows that succeeded; None if the environment does not say it."""
        success = next(
            (values for values in map(self.info_tensor, SUCCESS) if values is not None), None
        )
        return success if success is not None and success.ndim == 1 else None

    def limit(self, steps: int) -> None:
        """Truncate episodes after `steps` steps, which the environment does itself."""
        limit = getattr(self.env, "limit", None)
        if limit is None:
            raise UsageError(
                f"{self.spec.id} cannot cut its episodes after a number of steps: it has no 'limit'"
            )
        limit(steps)

    def running_returns(self) -> Array:
        """Return the sum of rewards of each running episode [N]."""
        return to_host(self._totals)

    def state_dict(self) -> State:
        """Return the state of all rows and their running episodes; for an inexact environment only the reason."""
        if self.spec.inexact or not isinstance(self.env, Stateful):
            return {"inexact": self.spec.inexact}
        return {
            "env": self.env.state_dict(),
            "lengths": self._lengths.clone(),
            "totals": self._totals.clone(),
            "resetting": self._resetting.clone(),
            "probe": self._probe.clone(),
        }

    def load_state_dict(self, state: State) -> None:
        """Continue from a saved state; the next call is `step`.

        Raises:
            BadEnv: the state was not captured, or has another number of rows.
        """
        check_state(state, len(state.get("lengths", ())), self.spec)
        assert isinstance(self.env, Stateful)
        self.env.reset(seed=0)  # makes the tensors that the environment makes at its first reset
        self.env.load_state_dict(state["env"])
        arrays = to_device(
            {key: state[key] for key in ("lengths", "totals", "resetting", "probe")}, self.device
        )
        self._lengths = arrays["lengths"]
        self._totals = arrays["totals"]
        self._resetting = arrays["resetting"]
        self._probe = arrays["probe"]

    def close(self) -> None:
        close = getattr(self.env, "close", None)
        if close is not None:
            close()


def _array(tensor: Tensor) -> Array:
    """Return a tensor for a field that holds arrays of other environments."""
    return cast("Array", tensor)


def _mode_of(env: TensorEnv, id: str) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    if isinstance(mode, AutoresetMode):
        return mode
    raise BadEnv(
        f"{id}: the vector environment does not say when it resets a row after an episode; set "
        "metadata['autoreset_mode'] to gymnasium.vector.AutoresetMode.SAME_STEP, DISABLED or NEXT_STEP"
    )


def is_tensor_env(env: object) -> TypeGuard[TensorEnv]:
    """Return whether a vector environment declares a device for its tensors."""
    return isinstance(env, TensorEnv) and isinstance(
        getattr(env, "device", None), str | torch.device
    )

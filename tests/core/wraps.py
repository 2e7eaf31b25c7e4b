"""Small wrappers, right and wrong ones; commands and workers load them by path."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core.config.options import Config, Positive
from rlplug_core.plugins.transform import Transform, with_obs, with_reward
from rlplug_core.protocols import Env
from rlplug_core.testing.envs import Chain
from rlplug_core.types import Array, Obs, State, Timestep

HERE = Path(__file__).resolve()
#: Not a wrapper.
HALVES = 2


@dataclass(frozen=True)
class AgedConfig(Config):
    step: Positive = 0.1  # age of one step
    name: str = "x"  # a text
    sizes: tuple[int, ...] = (1, 2)  # several numbers


class Aged(Transform):
    """Appends the age of the episode to observations: a wrapper with options and a state."""

    Config = AgedConfig

    def __init__(self, env: Env, config: AgedConfig) -> None:
        super().__init__(env)
        self.config = config
        space: Any = env.spec.obs
        width = space.shape[0] + 1
        self.spec = replace(env.spec, obs=spaces.Box(-np.inf, np.inf, (width,), np.float32))
        self.age = np.zeros(env.spec.num_envs, np.float32)

    def reset(self, seed: int) -> Timestep:
        now = self.env.reset(seed)
        self.age = np.zeros(self.spec.num_envs, np.float32)
        obs = self._with_age(now.obs)
        return with_obs(now, obs, obs)

    def step(self, action: Array) -> Timestep:
        now = self.env.step(action)
        self.age = self.age + np.float32(self.config.step)
        final = self._with_age(now.final_obs)
        self.age[now.is_first] = 0
        return with_obs(now, self._with_age(now.obs), final)

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        self.age = np.where(is_first, 0, self.age + np.float32(self.config.step))
        return self._with_age(super().observe(obs, is_first))

    def _with_age(self, obs: Array) -> Array:
        return np.concatenate([obs, self.age[:, None]], 1, dtype=np.float32)

    def state_dict(self) -> State:
        return super().state_dict() | {"age": self.age.copy()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.age = np.array(state["age"])


class Tenfold(Transform):
    """A wrapper without options."""

    def step(self, action: Array) -> Timestep:
        now = self.env.step(action)
        return with_reward(now, now.reward * np.float32(10))


class RecordsClose(Tenfold):
    """Records when it is closed."""

    closed: ClassVar[list[str]] = []

    def close(self) -> None:
        self.closed.append(self.env.spec.id)
        super().close()


class CannotBuild(Tenfold):
    """Cannot be built."""

    def __init__(self, env: Env, config: Config) -> None:
        raise ValueError("not today")


class NoSpec(Tenfold):
    """Has no spec."""

    def __init__(self, env: Env, config: Config) -> None:
        pass


class OnlyStep:
    """Lacks most methods of a wrapper."""

    def step(self, action: Array) -> Timestep:
        raise NotImplementedError


class Centered(Transform):
    """Subtracts the running mean of observations: a wrapper that learns."""

    def __init__(self, env: Env, config: Config | None = None) -> None:
        super().__init__(env)
        self.spec = replace(env.spec, obs=spaces.Box(-np.inf, np.inf, env.spec.obs.shape, np.float32))
        self.sum = np.zeros(env.spec.obs.shape or (), np.float64)
        self.count = 0.0
        self.frozen = False

    def reset(self, seed: int) -> Timestep:
        now = self.env.reset(seed)
        obs = self._update(now.obs)
        return with_obs(now, obs, obs)

    def step(self, action: Array) -> Timestep:
        now = self.env.step(action)
        obs = self._update(now.obs)
        return with_obs(now, obs, obs if now.final_obs is now.obs else self._center(now.final_obs))

    def observe(self, obs: Obs, is_first: Array) -> Obs:
        return self._center(super().observe(obs, is_first))

    def learned(self) -> State:
        return super().learned() | {"sum": self.sum.copy(), "count": self.count}

    def freeze(self, state: State) -> None:
        super().freeze(state)
        self.sum = np.array(state["sum"])
        self.count = state["count"]
        self.frozen = True

    def state_dict(self) -> State:
        return super().state_dict() | {"sum": self.sum.copy(), "count": self.count}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.sum = np.array(state["sum"])
        self.count = state["count"]

    def _update(self, obs: Array) -> Array:
        if not self.frozen:
            self.sum = self.sum + obs.sum(0)
            self.count = self.count + len(obs)
        return self._center(obs)

    def _center(self, obs: Array) -> Array:
        return (obs - self.sum / max(1, self.count)).astype(np.float32)


class ReportsSuccess(Transform):
    """Reports the success of each episode."""

    def step(self, action: Array) -> Timestep:
        now = self.env.step(action)
        return replace(now, episodes=[replace(episode, success=episode.total > 0) for episode in now.episodes])


def chain_with_success(num_envs: int) -> Env:
    """Make a chain that reports the success of each episode."""
    return ReportsSuccess(Chain(num_envs))


class CannotSave(Chain):
    """A chain that cannot save its state."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = replace(self.spec, inexact="a test")

    def state_dict(self) -> State:
        return {"inexact": "a test"}

    def load_state_dict(self, state: State) -> None:
        raise AssertionError("nothing was captured")


#: The number of steps until `Terminates` sends SIGTERM to its own process, counted down there for all of its modules.
TERMINATE_IN = "RLPLUG_TEST_LEAVE_IN"


class Terminates(CannotSave):
    """Starts at a random place; sends SIGTERM to its own process after as many steps as a variable says."""

    def open(self, rows: Array) -> None:
        super().open(rows)
        self.state["place"][rows] = self.generator.integers(1, 4, int(rows.sum()))

    def step(self, action: Array) -> Timestep:
        if left := int(os.environ.get(TERMINATE_IN, "0")):
            os.environ[TERMINATE_IN] = str(left - 1)
            if left == 1:
                os.kill(os.getpid(), signal.SIGTERM)
        return super().step(action)

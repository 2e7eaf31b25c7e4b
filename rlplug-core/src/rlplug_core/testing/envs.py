"""Small numpy environments with known answers, built as `Chain(rows)`; in commands, `rlplug_core.testing.envs:Chain`.

Each is a complete `Env` with exact state. All of them enforce the contract: arrays that a call returned are overwritten
with garbage two calls later. The last ones fail on purpose.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from multiprocessing import parent_process
from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core.types import Array, Episode, Obs, Space, Spec, State, Timestep, tree_map


class Vector:
    """The base of the environments below: a vector in the mode SAME_STEP. Its state is `self.state` and one generator.

    A subclass defines its spaces, the start of episodes (`open`), observations (`observe`) and dynamics (`move`).
    """

    obs: ClassVar[Space]
    action: ClassVar[Space] = spaces.Discrete(2)
    #: Whether arrays are overwritten when they are no longer valid.
    scribbles: bool = True

    def __init__(self, num_envs: int) -> None:
        self.spec = Spec(self.obs, self.action, num_envs, type(self).__name__)
        self.num_envs = num_envs
        self.generator = np.random.default_rng(0)
        self.state: dict[str, Array] = {
            "length": np.zeros(num_envs, np.int64),
            "total": np.zeros(num_envs),
        }
        self._handed: list[dict[str, Obs]] = []

    def open(self, rows: Array) -> None:
        """Start an episode in the rows of the mask `rows` [N]."""

    def observe(self) -> Obs:
        """Return new arrays [N, ...]."""
        raise NotImplementedError

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        """Return reward, terminated and truncated [N] for the actions."""
        raise NotImplementedError

    def set_rows(self, name: str, rows: Array, values: Array) -> None:
        """Set the rows of the mask `rows` [N] in `state[name]` to those of `values` [N, ...]."""
        self.state.setdefault(name, np.zeros_like(values))[rows] = values[rows]

    def terminate(self, reward: Array) -> tuple[Array, Array, Array]:
        """Return the rewards [N] of steps that all terminate their episodes, as `move` does."""
        return reward, np.ones(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)

    def reset(self, seed: int) -> Timestep:
        self.generator = np.random.default_rng(seed)
        never = np.zeros(self.num_envs, np.bool_)
        always = np.ones(self.num_envs, np.bool_)
        self._open(always)
        obs = self.observe()
        return self._hand_out(
            Timestep.opening(obs, np.zeros(self.num_envs), is_first=always, never=never)
        )

    def step(self, action: Array) -> Timestep:
        reward, terminated, truncated = self.move(action)
        self.state["length"] += 1
        self.state["total"] += reward
        ended = terminated | truncated
        final = obs = self.observe()
        episodes = [
            Episode(int(row), float(self.state["total"][row]), int(self.state["length"][row]))
            for row in np.flatnonzero(ended)
        ]
        if episodes:
            self._open(ended)
            obs = self.observe()
        timestep = Timestep(
            obs=obs,
            final_obs=final,
            reward=reward,
            terminated=terminated,
            truncated=truncated & ~terminated,
            is_first=ended,
            valid=np.ones(self.num_envs, np.bool_),
            episodes=episodes,
            ended=bool(episodes),
            count=self.num_envs,
        )
        return self._hand_out(timestep)

    def _open(self, rows: Array) -> None:
        self.state["length"][rows] = 0
        self.state["total"][rows] = 0
        self.open(rows)

    def _hand_out(self, timestep: Timestep) -> Timestep:
        """Return copies of everything and overwrite the arrays from two calls ago."""
        obs = tree_map(np.copy, timestep.obs)
        arrays = {
            "obs": obs,
            "final_obs": obs
            if timestep.final_obs is timestep.obs
            else tree_map(np.copy, timestep.final_obs),
            "reward": timestep.reward.astype(np.float32),
            "terminated": timestep.terminated.copy(),
            "truncated": timestep.truncated.copy(),
            "is_first": timestep.is_first.copy(),
            "valid": timestep.valid.copy(),
        }
        self._handed.append(arrays)
        if len(self._handed) > 2:
            stale = self._handed.pop(0)
            if self.scribbles:
                tree_map(overwrite, stale)
        return replace(timestep, **arrays)

    def state_dict(self) -> State:
        state = {name: array.copy() for name, array in self.state.items()}
        return {"state": state, "generator": self.generator.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        self.state = {name: np.array(array) for name, array in state["state"].items()}
        self.generator.bit_generator.state = state["generator"]

    def close(self) -> None:
        pass


def overwrite(array: Array) -> None:
    """Overwrite an array with values that cannot be mistaken for data."""
    if array.dtype.kind == "f":
        array[...] = np.nan
    elif array.dtype.kind == "b":
        array[...] = True
    else:
        array[...] = np.iinfo(array.dtype).max


class Chain(Vector):
    """Five places in a row, starting in the middle: reward 1 for leaving at the right, 0 at the left; both terminate.

    From place s in 0…4 the undiscounted value of random actions is (s + 1) / 6, and of always going right γ^(4 - s).
    An episode is truncated after 32 steps, which changes no value.
    """

    places: ClassVar[int] = 5
    obs = spaces.Box(0, 1, (5,), np.float32)

    def open(self, rows: Array) -> None:
        self.set_rows("place", rows, np.full(self.num_envs, self.places // 2))

    def observe(self) -> Obs:
        """Return one-hot places; zeros outside."""
        place = self.state["place"]
        obs = np.zeros((self.num_envs, self.places), np.float32)
        inside = np.flatnonzero((place >= 0) & (place < self.places))
        obs[inside, place[inside]] = 1
        return obs

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        place = self.state["place"]
        place += 2 * action - 1
        won = place == self.places
        return won.astype(np.float64), won | (place == -1), self.state["length"] + 1 >= 32


class Truncated(Vector):
    """A reward of 1 in every step, truncated after 10: the value is 1 / (1 - γ), but only if truncation bootstraps."""

    limit: ClassVar[int] = 10
    obs = spaces.Box(1, 1, (1,), np.float32)

    def observe(self) -> Obs:
        return np.ones((self.num_envs, 1), np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        return (
            np.ones(self.num_envs),
            np.zeros(self.num_envs, np.bool_),
            self.state["length"] + 1 >= self.limit,
        )


class Recall(Vector):
    """A cue of 1 or -1 in the first observation, and a question in the fifth: reward 1 if the action repeats the cue.

    Action 1 repeats the cue 1, action 0 the cue -1. The best return is 1, without memory 0.5. Observations are
    dictionaries.
    """

    length: ClassVar[int] = 5
    obs = spaces.Dict(
        {"cue": spaces.Box(-1, 1, (1,), np.float32), "asked": spaces.Box(0, 1, (1,), np.float32)}
    )

    def open(self, rows: Array) -> None:
        self.set_rows("cue", rows, 2 * self.generator.integers(0, 2, self.num_envs) - 1)

    def observe(self) -> Obs:
        age = self.state["length"]
        cue = np.where(age == 0, self.state["cue"], 0)
        asked = age == self.length - 1
        return {
            "cue": cue[:, None].astype(np.float32),
            "asked": asked[:, None].astype(np.float32),
        }

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        last = self.state["length"] + 1 >= self.length
        correct = (2 * action - 1) == self.state["cue"]
        return (last & correct).astype(np.float64), last, np.zeros(self.num_envs, np.bool_)


class LongRecall(Recall):
    """A cue of 1 or -1 in the first observation, then ten observations without information, then the question."""

    length = 12


class Masked(Vector):
    """Three actions, two random ones are allowed: reward 1 for the lower one. A forbidden action raises ValueError.

    Episodes have four steps; the best return is 4, random allowed actions get 2.
    """

    action = spaces.Discrete(3)
    obs = spaces.Dict(
        {"obs": spaces.Box(0, 1, (3,), np.float32), "action_mask": spaces.MultiBinary(3)}
    )

    def open(self, rows: Array) -> None:
        self.set_rows("forbidden", rows, self.generator.integers(0, 3, self.num_envs))

    def observe(self) -> Obs:
        mask = (np.arange(3) != self.state["forbidden"][:, None]).astype(np.int8)
        return {"obs": mask.astype(np.float32), "action_mask": mask}

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        forbidden = self.state["forbidden"]
        if (action == forbidden).any():
            raise ValueError(
                f"forbidden actions were taken in the rows {np.flatnonzero(action == forbidden).tolist()}"
            )
        reward = (action == np.where(forbidden == 0, 1, 0)).astype(np.float64)
        self.open(np.ones(self.num_envs, np.bool_))
        return reward, self.state["length"] + 1 >= 4, np.zeros(self.num_envs, np.bool_)


class Pixels(Vector):
    """A bright column in a 10 × 10 image: reward 1 for action 0 if it is in the left half, else for action 1."""

    obs = spaces.Box(0, 255, (1, 10, 10), np.uint8)

    def open(self, rows: Array) -> None:
        self.set_rows("column", rows, self.generator.integers(0, 10, self.num_envs))

    def observe(self) -> Obs:
        image = np.zeros((self.num_envs, 1, 10, 10), np.uint8)
        image[np.arange(self.num_envs), 0, :, self.state["column"]] = 255
        return image

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        correct = action == (self.state["column"] >= 5)
        return self.terminate(correct.astype(np.float64))


class Bandit(Vector):
    """Two arms, one pull per episode: arm 0 pays 1 with probability 0.1, arm 1 with 0.9; these are their values."""

    obs = spaces.Box(1, 1, (1,), np.float32)

    def observe(self) -> Obs:
        return np.ones((self.num_envs, 1), np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        paid = self.generator.random(self.num_envs) < np.where(action == 1, 0.9, 0.1)
        return self.terminate(paid.astype(np.float64))


class Continuous(Vector):
    """Observe x in [-1, 1] and act once: the reward is -(a - x / 2)², so the best action is x / 2 and its value 0."""

    action = spaces.Box(-1, 1, (1,), np.float32)
    obs = spaces.Box(-1, 1, (1,), np.float32)

    def open(self, rows: Array) -> None:
        self.set_rows("x", rows, self.generator.uniform(-1, 1, self.num_envs))

    def observe(self) -> Obs:
        return self.state["x"][:, None].astype(np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        taken = np.clip(action[:, 0], -1, 1)
        return self.terminate(-np.square(taken - self.state["x"] / 2))


class Faulty(Chain):
    """A chain that fails after 20 steps of this instance."""

    after: ClassVar[int] = 20

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.steps = 0

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        self.steps += 1
        if self.steps > self.after:
            self.fail()
        return super().move(action)

    def fail(self) -> None:
        raise NotImplementedError


class Crashing(Faulty):
    """Raises RuntimeError."""

    def fail(self) -> None:
        raise RuntimeError(f"the environment broke after {self.after} steps")


class CrashingWorker(Crashing):
    """Raises RuntimeError, but only in a worker process, so the parent can evaluate."""

    def fail(self) -> None:
        if parent_process() is not None:
            super().fail()


class Exiting(Faulty):
    """Ends its worker process without a message, with exit code 7; does nothing in the parent."""

    def fail(self) -> None:
        if parent_process() is not None:
            os._exit(7)


class Hanging(Faulty):
    """Blocks its worker process forever; does nothing in the parent."""

    def fail(self) -> None:
        if parent_process() is not None:
            threading.Event().wait()

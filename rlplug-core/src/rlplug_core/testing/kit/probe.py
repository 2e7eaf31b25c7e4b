"""An environment in any spaces that does not care about actions, in copies that differ in exactly one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import scribble
from rlplug_core.testing.kit.outcome import Skipped
from rlplug_core.types import MASK, Array, Episode, Obs, Space, Spec, State, Timestep, tree_map

Draw: TypeAlias = Callable[[np.random.Generator], Obs]
End: TypeAlias = Literal["terminated", "truncated", "either", "never"]
#: What may come from another series in one half of the rows: what every second episode holds, all rewards, those of the
#: first steps of episodes, or what is seen behind the first.
Moved: TypeAlias = Literal["", "sequel", "rewards", "opening", "later"]


@dataclass(frozen=True)
class Story:
    """The events in a probe; two stories that differ in one field tell the same apart from that.

    Attributes:
        ends: how episodes of `length` steps end: with "either" by rows in turn, with "never" there is one episode.
        finals: which of several series the successors of last steps come from, in vector steps before `settled`
            (0 for all); later ones are from series 0.
        absent: whether a row is absent (`valid` False) for one step after each episode, with contents from the series
            `garbage`.
        pausing: whether a row is absent for one step after the first of each episode too, likewise.
        turning: from this vector step on observations come from another series; 0 for never.
        scribbles: whether arrays are overwritten once they are no longer valid.
        moved: what comes from another series in the first half of the rows, or in the second with `elsewhere`.
        broken: from this vector step on every reward is NaN; 0 for never.
        scale: the standard deviation of rewards.
    """

    ends: End = "terminated"
    length: int = 3
    finals: int = 0
    settled: int = 0
    absent: bool = False
    garbage: int = 0
    pausing: bool = False
    turning: int = 0
    scribbles: bool = False
    moved: Moved = ""
    elsewhere: bool = False
    broken: int = 0
    scale: float = 1.0

    def lasting(self, turns: int) -> int:
        """Vector steps in which every row is there `turns` times; of `length` + 1 it may miss one."""
        return turns + -(-turns // self.length) if self.absent or self.pausing else turns


class Probe:
    """Random observations and rewards, the same whatever is done; episodes of the rows end in different steps.

    With `placing`, `places` says where each observation was seen, by its bytes: in which row, in which of the row's
    episodes, in which step of that.
    """

    def __init__(self, spec: Spec, story: Story, placing: bool = False) -> None:
        self.spec = Spec(
            spec.obs,
            spec.action,
            spec.num_envs,
            f"Probe of {spec.id}",
            "it is made for comparisons",
        )
        self.story = story
        self.num_envs = spec.num_envs
        self.placing = placing
        self.draw = drawing(spec.obs, spec.num_envs)
        self.handed: list[tuple[object, ...]] = []
        self.places: dict[bytes, tuple[int, int, int]] = {}

    def reset(self, seed: int) -> Timestep:
        story = self.story
        self.common = np.random.default_rng([seed, 0])
        self.turned = np.random.default_rng([seed, 1])
        self.usual = np.random.default_rng([seed, 2, 0])
        self.finals = np.random.default_rng([seed, 2, story.finals])
        self.garbage = np.random.default_rng([seed, 3, story.garbage])
        self.moved = np.random.default_rng([seed, 4])
        self.turn = 0
        self.age = np.arange(self.num_envs) % story.length
        self.number = np.zeros(self.num_envs, np.int64)
        self.gone = self.none()
        obs = self.draw(self.common)
        self._place(obs)
        none = self.none()
        reward = np.zeros(self.num_envs, np.float32)
        return self._timestep(obs, obs, reward, over=none, is_first=~none, absent=none)

    def step(self, action: Array) -> Timestep:
        self.turn += 1
        story = self.story
        obs = self.draw(self.common)
        obs = self.draw(self.turned) if 0 < story.turning <= self.turn else obs
        reward = self._reward()
        was_gone = self.gone
        if was_gone.any():
            strange = 1000 * self.garbage.standard_normal(self.num_envs).astype(np.float32)
            reward = np.where(was_gone, strange, reward)
        self.age += ~was_gone
        over = (self.age >= story.length) & (story.ends != "never")
        self.age[over] = 0
        self.number += over
        obs = self._seen(obs)
        final = _where(over, self._final(), obs) if over.any() else obs
        self.gone = self._leaving(over, was_gone)
        obs = _where(self.gone, self.draw(self.garbage), obs) if self.gone.any() else obs
        self._place(obs)
        opened = over | (was_gone & (self.age == 0))
        return self._timestep(obs, final, reward, over=over, is_first=opened, absent=was_gone)

    def _final(self) -> Obs:
        """Successors [N, ...] of last steps; both series move on, so that stories settle on the same ones."""
        usual = self.draw(self.usual)
        other = self.draw(self.finals)
        return usual if 0 < self.story.settled <= self.turn else other

    def _reward(self) -> Array:
        """Return the rewards [N] of the steps under way."""
        reward = self.common.standard_normal(self.num_envs).astype(np.float32)
        moves = {"rewards": ~self.none(), "sequel": self.number % 2 == 1, "opening": self.age == 0}
        if self.story.moved in moves:
            other = self.moved.standard_normal(self.num_envs).astype(np.float32)
            reward = np.where(self._half() & moves[self.story.moved], other, reward)
        reward *= np.float32(self.story.scale)
        return np.full_like(reward, np.nan) if 0 < self.story.broken <= self.turn else reward

    def _seen(self, obs: Obs) -> Obs:
        """Observations [N, ...], some from another series."""
        moves = {"sequel": self.number % 2 == 1, "later": self.age > 0}
        if self.story.moved not in moves:
            return obs
        other = self.draw(self.moved)
        return _where(self._half() & moves[self.story.moved], other, obs)

    def _half(self) -> Array:
        """Return whose events may come from another series, [N]."""
        half: Array = (np.arange(self.num_envs) >= self.num_envs // 2) == self.story.elsewhere
        return half

    def _place(self, obs: Obs) -> None:
        for row, key in enumerate(keys(obs, self.num_envs) if self.placing else ()):
            self.places[key] = (row, int(self.number[row]), int(self.age[row]))

    def _leaving(self, over: Array, was_gone: Array) -> Array:
        """Return which environments [N] are absent in the next step."""
        paused = (self.age == 1) & ~was_gone & self.story.pausing
        leaving: Array = paused | (over & self.story.absent)
        return leaving

    def none(self) -> Array:
        return np.zeros(self.num_envs, np.bool_)

    def _timestep(
        self, obs: Obs, final_obs: Obs, reward: Array, over: Array, is_first: Array, absent: Array
    ) -> Timestep:
        turns = {"terminated": ~self.none(), "either": np.arange(self.num_envs) % 2 == 1}
        terminated = over & turns.get(self.story.ends, self.none())
        truncated = over & ~terminated
        arrays = (
            obs,
            final_obs,
            reward,
            terminated.copy(),
            truncated.copy(),
            is_first.copy(),
            ~absent,
        )
        self.handed.append(arrays)
        if self.story.scribbles and len(self.handed) > 2:
            for tree in self.handed.pop(0):
                tree_map(scribble, tree)
        episodes = [Episode(int(row), 0.0, self.story.length) for row in np.flatnonzero(over)]
        return Timestep(*arrays, episodes, bool(episodes), int((~absent).sum()))

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


def keys(obs: object, rows: int) -> list[bytes]:
    """The bytes by which the rows of observations [rows, ...] are known again; nested dictionaries of arrays."""
    parts: list[Array] = []
    tree_map(lambda leaf: parts.append(np.asarray(leaf, np.float32).reshape(rows, -1)), obs)
    return [row.tobytes() for row in np.concatenate(parts, 1)]


def drawing(space: Space, rows: int) -> Draw:
    """Return what draws random elements [rows, ...] of a space; every action is legal where there is an action mask.

    Raises:
        Skipped: the kit cannot draw from such a space.
    """
    shape = (rows, *(space.shape or ()))
    if isinstance(space, spaces.Dict):
        parts = {name: drawing(part, rows) for name, part in space.spaces.items()}
        if MASK in parts:
            legal = np.ones_like(parts[MASK](np.random.default_rng(0)))
            parts[MASK] = lambda generator: legal.copy()
        return lambda generator: {name: part(generator) for name, part in parts.items()}
    if isinstance(space, spaces.Box):
        low, high = (
            np.nan_to_num(bound.astype(np.float64), posinf=3, neginf=-3)
            for bound in (space.low, space.high)
        )
        low = np.clip(low, -1e3, 1e3)
        high = np.clip(high, -1e3, 1e3)
        return lambda generator: (low + (high - low) * generator.random(shape)).astype(space.dtype)
    if isinstance(space, spaces.Discrete):
        return lambda generator: space.start + generator.integers(0, space.n, rows)
    if isinstance(space, spaces.MultiBinary):
        return lambda generator: generator.integers(0, 2, shape).astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return lambda generator: np.asarray(
            space.start + generator.integers(0, space.nvec, shape), dtype=space.dtype
        )
    raise Skipped(f"the kit cannot draw observations from {space}")


def _where(rows: Array, one: Obs, other: Obs) -> Obs:
    """The rows of the mask `rows` [N] from `one`, the rest from `other`."""

    def chosen(a: Array, b: Array) -> Array:
        return np.where(rows.reshape(-1, *[1] * (a.ndim - 1)), a, b).astype(a.dtype)

    return tree_map(chosen, one, other)

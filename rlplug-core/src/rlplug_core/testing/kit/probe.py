"""An environment with any spaces that ignores actions; copies of it differ in exactly one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from gymnasium import spaces

from rlplug_core.testing.envs import overwrite
from rlplug_core.testing.kit.outcome import Skipped
from rlplug_core.types import (
    MASK,
    Array,
    Episode,
    Obs,
    Space,
    Spec,
    State,
    Timestep,
    align_mask,
    tree_map,
)

Draw: TypeAlias = Callable[[np.random.Generator], Obs]
End: TypeAlias = Literal["terminated", "truncated", "either", "never"]
#: The events that one half of the rows takes from another series: every second episode, all rewards, rewards of the
#: first steps of episodes, or observations after the first.
Moved: TypeAlias = Literal["", "sequel", "rewards", "opening", "later"]


@dataclass(frozen=True)
class Story:
    """The events in a probe; two stories that differ in one field are equal in all other events.

    Attributes:
        ends: how episodes of `length` steps end; "either" alternates by row, "never" means one endless episode.
        finals: the series of successors of last steps after vector step `since` and before `settled` (0: to the end);
            the others come from series 0.
        absent: whether a row is absent (`valid` False) for one step after each episode, with contents from the series
            `garbage`.
        pausing: the same for one step after the first step of each episode.
        turning: first vector step with observations from another series; 0 for never.
        scribbles: whether arrays are overwritten when they are no longer valid.
        moved: the part from another series in the first half of the rows, or in the second with `elsewhere`.
        broken: first vector step with NaN rewards; 0 for never.
        scale: the standard deviation of rewards.
    """

    ends: End = "terminated"
    length: int = 3
    finals: int = 0
    since: int = 0
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
        """Return the vector steps until every row was present `turns` times; it may miss one of `length` + 1."""
        return turns + -(-turns // self.length) if self.absent or self.pausing else turns


class Probe:
    """Random observations and rewards, independent of actions; episodes of the rows end in different steps.

    Achieved goals are the same in all series: hindsight replay learns from them also after a termination.
    With `placing`, `places` maps the bytes of each observation to its row, episode and step.
    """

    def __init__(
        self,
        spec: Spec,
        story: Story,
        placing: bool = False,
    ) -> None:
        self.spec = Spec(
            spec.obs,
            spec.action,
            spec.num_envs,
            f"Probe of {spec.id}",
            "it is only for comparisons",
            goals=spec.goals,
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
        obs = self._draw_other(obs, self.turned) if 0 < story.turning <= self.turn else obs
        reward = self._reward()
        was_gone = self.gone
        if was_gone.any():
            garbage = 1000 * self.garbage.standard_normal(self.num_envs).astype(np.float32)
            reward = np.where(was_gone, garbage, reward)
        self.age += ~was_gone
        over = (self.age >= story.length) & (story.ends != "never")
        self.age[over] = 0
        self.number += over
        obs = self._observations(obs)
        final = _where(over, self._final(), obs) if over.any() else obs
        paused = (self.age == 1) & ~was_gone & story.pausing
        self.gone = paused | (over & story.absent)
        obs = _where(self.gone, self.draw(self.garbage), obs) if self.gone.any() else obs
        self._place(obs)
        opened = over | (was_gone & (self.age == 0))
        return self._timestep(obs, final, reward, over=over, is_first=opened, absent=was_gone)

    def _draw_other(self, obs: Obs, generator: np.random.Generator) -> Obs:
        """Return observations [N, ...] of another series, with the achieved goals of `obs` if there are goals."""
        drawn = self.draw(generator)
        return {**drawn, "achieved_goal": obs["achieved_goal"]} if self.spec.goals else drawn

    def _final(self) -> Obs:
        """Return successors [N, ...] of last steps; both series advance, so stories agree outside the window."""
        common = self.draw(self.usual)
        alternative = self._draw_other(common, self.finals)
        before = self.turn <= self.story.since
        after = 0 < self.story.settled <= self.turn
        return common if before or after else alternative

    def _reward(self) -> Array:
        """Return the rewards [N] of the current steps."""
        reward = self.common.standard_normal(self.num_envs).astype(np.float32)
        moves = {"rewards": ~self.none(), "sequel": self.number % 2 == 1, "opening": self.age == 0}
        if self.story.moved in moves:
            alternative = self.moved.standard_normal(self.num_envs).astype(np.float32)
            reward = np.where(self._half() & moves[self.story.moved], alternative, reward)
        reward *= np.float32(self.story.scale)
        return np.full_like(reward, np.nan) if 0 < self.story.broken <= self.turn else reward

    def _observations(self, obs: Obs) -> Obs:
        """Return observations [N, ...], some from another series."""
        moves = {"sequel": self.number % 2 == 1, "later": self.age > 0}
        if self.story.moved not in moves:
            return obs
        alternative = self._draw_other(obs, self.moved)
        return _where(self._half() & moves[self.story.moved], alternative, obs)

    def _half(self) -> Array:
        """Return a mask [N] of the rows with events from another series."""
        return (np.arange(self.num_envs) >= self.num_envs // 2) == self.story.elsewhere

    def _place(self, obs: Obs) -> None:
        for row, key in enumerate(keys(obs, self.num_envs) if self.placing else ()):
            self.places[key] = (row, int(self.number[row]), int(self.age[row]))

    def none(self) -> Array:
        return np.zeros(self.num_envs, np.bool_)

    def _timestep(
        self,
        obs: Obs,
        final_obs: Obs,
        reward: Array,
        over: Array,
        is_first: Array,
        absent: Array,
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
                tree_map(overwrite, tree)
        episodes = [Episode(int(row), 0.0, self.story.length) for row in np.flatnonzero(over)]
        return Timestep(*arrays, episodes, bool(episodes), int((~absent).sum()))

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


def keys(obs: object, rows: int) -> list[bytes]:
    """Return the bytes of each row of observations [rows, ...], to recognize them later."""
    parts: list[Array] = []
    tree_map(lambda leaf: parts.append(np.asarray(leaf, np.float32).reshape(rows, -1)), obs)
    return [row.tobytes() for row in np.concatenate(parts, 1)]


def drawing(space: Space, rows: int) -> Draw:
    """Return a function that draws random elements [rows, ...] of a space; action masks allow everything.

    Raises:
        Skipped: the kit cannot draw from this kind of space.
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


def _where(rows: Array, inside: Obs, outside: Obs) -> Obs:
    """Return `inside` in the rows of the mask `rows` [N], and `outside` in the others."""

    def choose(a: Array, b: Array) -> Array:
        return np.where(align_mask(rows, a), a, b).astype(a.dtype)

    return tree_map(choose, inside, outside)

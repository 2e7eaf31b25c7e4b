"""An environment with any spaces that ignores actions; two of them can differ in exactly one kind of event."""

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
Change: TypeAlias = Literal["", "sequel", "rewards", "opening", "later"]


@dataclass(frozen=True)
class Scenario:
    """The events in a probe; two scenarios that differ in one field are equal in all other events.

    Attributes:
        ends: how episodes of `length` steps end; "either" alternates by row, "never" means one endless episode.
        finals: the series of the successors of last steps between the vector steps `finals_after` and `finals_before`
            (0: no end); outside, they come from series 0.
        absent: whether a row is absent (`valid` False) for one step after each episode, with contents from the series
            `garbage`.
        pauses: the same for one step after the first step of each episode.
        other_obs_from: first vector step with observations from another series; 0 for never.
        scribbles: whether arrays are overwritten when they are no longer valid.
        change: the part from another series in the first half of the rows, or in the second with `second_half`.
        nan_from: first vector step with NaN rewards; 0 for never.
        scale: the standard deviation of rewards.
    """

    ends: End = "terminated"
    length: int = 3
    finals: int = 0
    finals_after: int = 0
    finals_before: int = 0
    absent: bool = False
    garbage: int = 0
    pauses: bool = False
    other_obs_from: int = 0
    scribbles: bool = False
    change: Change = ""
    second_half: bool = False
    nan_from: int = 0
    scale: float = 1.0

    def steps_for(self, turns: int) -> int:
        """Return the vector steps until every row was present `turns` times; one of `length` + 1 steps may lack it."""
        return turns + -(-turns // self.length) if self.absent or self.pauses else turns


class Probe:
    """Random observations and rewards, independent of actions; episodes of the rows end in different steps.

    Achieved goals are the same in all series: hindsight replay learns from them also after a termination.
    With `placing`, `places` maps the bytes of each observation to its row, episode and step.
    """

    def __init__(
        self,
        spec: Spec,
        scenario: Scenario,
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
        self.scenario = scenario
        self.num_envs = spec.num_envs
        self.placing = placing
        self.draw = drawing(spec.obs, spec.num_envs)
        self.handed: list[tuple[object, ...]] = []
        self.places: dict[bytes, tuple[int, int, int]] = {}

    def reset(self, seed: int) -> Timestep:
        scenario = self.scenario
        # One generator for each series, so that drawing from one changes no other.
        self.common = np.random.default_rng([seed, 0])
        self.other_obs = np.random.default_rng([seed, 1])
        self.usual_finals = np.random.default_rng([seed, 2, 0])
        self.finals = np.random.default_rng([seed, 2, scenario.finals])
        self.garbage = np.random.default_rng([seed, 3, scenario.garbage])
        self.alternative = np.random.default_rng([seed, 4])
        self.turn = 0
        self.age = np.arange(self.num_envs) % scenario.length
        self.episode = np.zeros(self.num_envs, np.int64)
        self.absent = self._no_rows()
        obs = self.draw(self.common)
        self._place(obs)
        none = self._no_rows()
        reward = np.zeros(self.num_envs, np.float32)
        return self._timestep(obs, obs, reward, ended=none, is_first=~none, absent=none)

    def step(self, action: Array) -> Timestep:
        self.turn += 1
        scenario = self.scenario
        obs = self.draw(self.common)
        if 0 < scenario.other_obs_from <= self.turn:
            obs = self._draw_other(obs, self.other_obs)
        reward = self._reward()
        was_absent = self.absent
        if was_absent.any():
            garbage = 1000 * self.garbage.standard_normal(self.num_envs).astype(np.float32)
            reward = np.where(was_absent, garbage, reward)
        self.age += ~was_absent
        ended = (self.age >= scenario.length) & (scenario.ends != "never")
        self.age[ended] = 0
        self.episode += ended
        obs = self._observations(obs)
        final = _where(ended, self._final(), obs) if ended.any() else obs
        paused = (self.age == 1) & ~was_absent & scenario.pauses
        self.absent = paused | (ended & scenario.absent)
        obs = _where(self.absent, self.draw(self.garbage), obs) if self.absent.any() else obs
        self._place(obs)
        opened = ended | (was_absent & (self.age == 0))
        return self._timestep(obs, final, reward, ended=ended, is_first=opened, absent=was_absent)

    def _draw_other(self, obs: Obs, generator: np.random.Generator) -> Obs:
        """Return observations [N, ...] of another series, with the achieved goals of `obs` if there are goals."""
        drawn = self.draw(generator)
        return {**drawn, "achieved_goal": obs["achieved_goal"]} if self.spec.goals else drawn

    def _final(self) -> Obs:
        """Return successors [N, ...] of last steps; both series advance, so scenarios agree outside the window."""
        common = self.draw(self.usual_finals)
        alternative = self._draw_other(common, self.finals)
        before = self.turn <= self.scenario.finals_after
        after = 0 < self.scenario.finals_before <= self.turn
        return common if before or after else alternative

    def _reward(self) -> Array:
        """Return the rewards [N] of the current steps."""
        reward = self.common.standard_normal(self.num_envs).astype(np.float32)
        changes = {
            "rewards": ~self._no_rows(),
            "sequel": self.episode % 2 == 1,
            "opening": self.age == 0,
        }
        if self.scenario.change in changes:
            alternative = self.alternative.standard_normal(self.num_envs).astype(np.float32)
            reward = np.where(self._half() & changes[self.scenario.change], alternative, reward)
        reward *= np.float32(self.scenario.scale)
        return np.full_like(reward, np.nan) if 0 < self.scenario.nan_from <= self.turn else reward

    def _observations(self, obs: Obs) -> Obs:
        """Return observations [N, ...], some from another series."""
        changes = {"sequel": self.episode % 2 == 1, "later": self.age > 0}
        if self.scenario.change not in changes:
            return obs
        alternative = self._draw_other(obs, self.alternative)
        return _where(self._half() & changes[self.scenario.change], alternative, obs)

    def _half(self) -> Array:
        """Return a mask [N] of the rows with events from another series."""
        return (np.arange(self.num_envs) >= self.num_envs // 2) == self.scenario.second_half

    def _place(self, obs: Obs) -> None:
        for row, key in enumerate(keys(obs, self.num_envs) if self.placing else ()):
            self.places[key] = (row, int(self.episode[row]), int(self.age[row]))

    def _no_rows(self) -> Array:
        return np.zeros(self.num_envs, np.bool_)

    def _timestep(
        self,
        obs: Obs,
        final_obs: Obs,
        reward: Array,
        ended: Array,
        is_first: Array,
        absent: Array,
    ) -> Timestep:
        terminating_rows = {
            "terminated": ~self._no_rows(),
            "either": np.arange(self.num_envs) % 2 == 1,
        }
        terminated = ended & terminating_rows.get(self.scenario.ends, self._no_rows())
        truncated = ended & ~terminated
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
        if self.scenario.scribbles and len(self.handed) > 2:
            for tree in self.handed.pop(0):
                tree_map(overwrite, tree)
        episodes = [Episode(int(row), 0.0, self.scenario.length) for row in np.flatnonzero(ended)]
        return Timestep(*arrays, episodes, bool(episodes), int((~absent).sum()))

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


def keys(obs: object, rows: int) -> list[bytes]:
    """Return the bytes of each row of observations [rows, ...], to recognize them later."""
    flat: list[Array] = []
    tree_map(lambda leaf: flat.append(np.asarray(leaf, np.float32).reshape(rows, -1)), obs)
    return [row.tobytes() for row in np.concatenate(flat, 1)]


def drawing(space: Space, rows: int) -> Draw:
    """Return a function that draws random elements [rows, ...] of a space; action masks allow everything.

    Raises:
        Skipped: the kit cannot draw from this kind of space.
    """
    shape = (rows, *(space.shape or ()))
    if isinstance(space, spaces.Dict):
        draws = {name: drawing(part, rows) for name, part in space.spaces.items()}
        if MASK in draws:
            legal = np.ones_like(draws[MASK](np.random.default_rng(0)))
            draws[MASK] = lambda generator: legal.copy()
        return lambda generator: {name: draw(generator) for name, draw in draws.items()}
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

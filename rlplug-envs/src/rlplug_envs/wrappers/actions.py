"""Wrappers that repeat actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlplug_core.arrays import check_shape
from rlplug_core.config.options import Config, Fraction, Several
from rlplug_core.nets.actions import dtype_of, legal, shape_of
from rlplug_core.nets.heads.masks import mask_of
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_core.seeds import Draws, Seeds
from rlplug_core.types import MASK, Array, GymEnv, Space, State, Timestep, align_mask


@dataclass(frozen=True)
class StickyActionsConfig(Config):
    probability: Fraction = 0.25  # of repeating the last action


class StickyActions(Transform):
    """Sometimes the environment repeats its last action (Machado et al., 2018, arXiv:1709.06009).

    The first action of an episode is always taken, and so is an action if a mask forbids the last one. Learners see the
    agent's choice, not the action that was taken.
    """

    Config = StickyActionsConfig

    def __init__(self, env: Env, config: StickyActionsConfig) -> None:
        super().__init__(env)
        self._probability = config.probability
        self._start(0)

    def _start(self, seed: int) -> None:
        num_envs = self.spec.num_envs
        space = self.spec.action
        self._draws = Draws(
            Seeds(seed).child("sticky-actions").generator(),
            lambda generator, size: generator.random((size, num_envs)) < self._probability,
        )
        self._taken = np.zeros((num_envs, *shape_of(space)), dtype_of(space))
        self._first = np.ones(num_envs, np.bool_)
        self._turn: Array | None = None
        self._mask: Array | None = None

    def reset(self, seed: int) -> Timestep:
        self._start(seed)
        return self._remember(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        repeats = self._draws.next() & ~self._first
        if self._mask is not None:
            changed = legal(self.spec.action, self._taken, self._mask) != self._taken
            repeats &= ~changed.reshape(len(action), -1).any(1)
        if self._turn is not None:
            repeats |= ~self._turn  # an agent that waits has no action to repeat
            self._first &= ~self._turn
        # A fresh array: the environment may keep it.
        self._taken = np.where(align_mask(repeats, action), self._taken, action)
        return self._remember(self.env.step(self._taken))

    def _remember(self, timestep: Timestep) -> Timestep:
        """Store the rows without an action in their episode, those in turn, and the mask, for the next step."""
        waits = self._first if self._turn is not None else False
        self._first = timestep.is_first | waits
        self._turn = timestep.turn
        self._mask = mask_of(self.spec, timestep.obs)
        return timestep

    def state_dict(self) -> State:
        arrays = {
            "taken": self._taken.copy(),
            "first": self._first.copy(),
            "mask": None if self._mask is None else self._mask.copy(),
            "turn": None if self._turn is None else self._turn.copy(),
        }
        return super().state_dict() | arrays | {"draws": self._draws.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._taken = check_shape(np.array(state["taken"]), self._taken)
        self._first = check_shape(np.array(state["first"]), self._first)
        self._mask, self._turn = (
            None if saved is None else np.array(saved)
            for saved in (state["mask"], state.get("turn"))
        )
        self._draws.load_state_dict(state["draws"])


@dataclass(frozen=True)
class ActionRepeatConfig(Config):
    times: Several = 2  # how often each action is taken


class ActionRepeat(Transform):
    """Each action is taken several times, at most until the episode ends or a mask forbids it; rewards are summed.

    Steps and lengths of episodes count the agent's choices; a time limit counts the environment's own steps.
    """

    Config = ActionRepeatConfig

    def __init__(self, env: Env, config: ActionRepeatConfig) -> None:
        # A sum of rewards is not the reward of a goal.
        spec = env.spec.without_goals("action-repeat")
        super().__init__(complete(env).inside(partial(Repeated, times=config.times)))
        limit = ceil(env.spec.limit / config.times)
        self.spec = replace(self.spec, limit=limit, goals=spec.goals, no_goals=spec.no_goals)


class Repeated(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment that takes actions `times` times, or until a mask forbids them."""

    def __init__(self, env: GymEnv, times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.times):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
            mask = obs[MASK] if isinstance(obs, dict) and MASK in obs else info.get(MASK)
            if mask is not None and forbids(mask, self.action_space, action):
                break
        return obs, total, terminated, truncated, info


def forbids(mask: Any, space: Space, action: Any) -> bool:
    """Return whether a mask of all choices forbids an action in the form of the environment."""
    allowed = np.reshape(mask, -1)
    end = 0
    for choice, size in _choices(space, action):
        part_mask = allowed[end : end + size]
        end = end + size
        if part_mask.any() and not part_mask[choice]:
            return True
    return False


def _choices(space: Space, action: Any) -> Iterator[tuple[int, int]]:
    """Yield each choice of an action, counted from 0, and the number of its values."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _choices(part, action[name])
    elif isinstance(space, spaces.Tuple):
        for part, part_action in zip(space.spaces, action, strict=True):
            yield from _choices(part, part_action)
    elif isinstance(space, spaces.Discrete):
        yield int(action) - int(space.start), int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        for choice, start, size in zip(
            np.ravel(action), space.start.flat, space.nvec.flat, strict=True
        ):
            yield int(choice) - int(start), int(size)

"""`Policy`: what a user loads from a run; observation in, action out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rlplug_core.actions import one_of
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import MASK
from rlplug_core.protocols import Agent, Env, SupportsObserve, SupportsTranslate
from rlplug_core.types import Obs, tree_map


class Policy:
    """Observation in, action out, as in evaluation: for one observation or a batch, in the environment's own units.

    That is what the agent does when it must not explore: the best action it knows, unless an option such as
    `epsilon_evaluation` asks for a chance of another one. It begins with one row, whatever the batches' size: an agent
    that draws random numbers then draws for as many rows as come. The wrappers of the run stand between: they see the
    observations in turn, as if it were playing.
    """

    def __init__(self, agent: Agent, env: Env) -> None:
        self._agent, self._env = agent, env
        self._space = env.source.obs if isinstance(env, SupportsObserve) else env.spec.obs
        self._carry = agent.initial(1)
        self._first = np.ones(1, dtype=bool)
        self._clock = Clock(1)

    def reset(self) -> None:
        """Forget what was seen; needed only by policies or wrappers with memory, between episodes."""
        self._carry, self._first = self._agent.initial(1), np.ones(1, dtype=bool)

    def __call__(self, obs: Obs) -> Any:
        """The action for one observation (or [B, ...] of them, where neither policy nor wrappers have memory).

        Raises:
            UsageError: a part of the observation is missing, such as the mask of an environment that has it in `info`.
        """
        obs = _canonical(self._space, obs)
        single = self._is_single(obs)
        batch = tree_map(lambda array: np.asarray(array)[None], obs) if single else tree_map(np.asarray, obs)
        if isinstance(self._env, SupportsObserve):
            batch = self._env.observe(batch, self._first)
        act = self._agent.act(batch, self._first, self._carry, self._clock, explore=False)
        self._carry, self._first = act.carry, np.zeros(1, dtype=bool)
        action = self._env.translate(act.action) if isinstance(self._env, SupportsTranslate) else act.action
        return one_of(action, 0) if single else action

    def _is_single(self, obs: Obs) -> bool:
        space, part = self._space, obs
        while isinstance(part, dict):
            name = next(iter(part))
            space, part = space[name], part[name]  # type: ignore[index]
        return np.ndim(part) == len(space.shape or ())


def _canonical(space: spaces.Space[Any], obs: Any) -> Obs:
    """Observations as agents know them: of a tuple a dictionary keyed "0", "1", …."""
    if not isinstance(space, spaces.Dict):
        return obs
    if isinstance(obs, tuple):
        obs = {str(number): part for number, part in enumerate(obs)}
    if not isinstance(obs, Mapping) or space.spaces.keys() - obs.keys():
        entries = ", ".join(f"'{name}': info['{name}']" if name == MASK else f"'{name}': …" for name in space.spaces)
        raise UsageError(f"this observation lacks a part of what the policy sees; give it {{{entries}}}")
    return {name: _canonical(part, obs[name]) for name, part in space.spaces.items()}

"""A world with many agents as an environment for one: the others choose at random."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from rlplug_core.errors import UsageError
from rlplug_core.nets.actions import sample, sample_legal
from rlplug_core.plugins.transform import Transform
from rlplug_core.protocols import Env
from rlplug_core.types import MASK, Array, Episode, Obs, State, Timestep, tree_map


class RandomOpponents(Transform):
    """Shows one agent of each world; all others choose random legal actions.

    World n shows agent n; after the last agent the first one follows. The wrapper evaluates agents that were trained
    against themselves: `--eval-wrap random-opponents`.
    """

    def __init__(self, env: Env, config: object = None) -> None:
        super().__init__(env)
        agents = len(dict.fromkeys(env.spec.agents))
        if agents < 2 or env.spec.kinds:
            raise UsageError(
                f"random-opponents: {env.spec.id} does not have several agents with the same spaces"
            )
        worlds = env.spec.num_envs // agents
        self._rows = np.arange(worlds) * agents + np.arange(worlds) % agents
        self._place = {int(row): place for place, row in enumerate(self._rows)}
        self.spec = replace(env.spec, num_envs=worlds, agents=())
        self._choices = deepcopy(env.spec.action)  # a copy has its own generator

    def reset(self, seed: int) -> Timestep:
        self._choices.seed(seed)
        return self._select(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        if isinstance(self._obs, dict) and MASK in self._obs:
            all_actions = sample_legal(self._choices, self._obs[MASK])
        else:
            all_actions = sample(self._choices, self.env.spec.num_envs)
        all_actions[self._rows] = action
        return self._select(self.env.step(all_actions))

    def _select(self, timestep: Timestep) -> Timestep:
        """Return the timestep of the agents that are shown."""
        self._obs = timestep.obs
        obs = self._shown_rows(timestep.obs)
        final_obs = (
            obs if timestep.final_obs is timestep.obs else self._shown_rows(timestep.final_obs)
        )
        terminated = timestep.terminated[self._rows]
        truncated = timestep.truncated[self._rows]
        valid = timestep.valid[self._rows]
        return Timestep(
            obs=obs,
            final_obs=final_obs,
            reward=timestep.reward[self._rows],
            terminated=terminated,
            truncated=truncated,
            is_first=timestep.is_first[self._rows],
            valid=valid,
            episodes=self._episodes(timestep.episodes),
            ended=bool((terminated | truncated).any()),
            count=int(valid.sum()),
            turn=None if timestep.turn is None else timestep.turn[self._rows],
        )

    def _shown_rows(self, obs: Obs) -> Any:
        return tree_map(lambda leaf: leaf[self._rows], obs)

    def _episodes(self, episodes: Sequence[Episode]) -> list[Episode]:
        return [
            replace(episode, row=self._place[episode.row], agent="")
            for episode in episodes
            if episode.row in self._place
        ]

    def info(self, key: str) -> list[object]:
        values = super().info(key)
        return [values[row] for row in self._rows]

    def running_returns(self) -> Array | None:
        returns = super().running_returns()
        return None if returns is None else returns[self._rows]

    def state_dict(self) -> State:
        wrapper_state = {
            "obs": tree_map(np.copy, self._obs),
            "action": self._choices.np_random.bit_generator.state,
        }
        return super().state_dict() | wrapper_state

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._obs = tree_map(np.array, state["obs"])
        self._choices.np_random.bit_generator.state = state["action"]

"""The wrapper `expert`: a trained run gives the action that it would choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import rlplug_core as rl


@dataclass(frozen=True)
class ExpertConfig(rl.Config):
    """Options of the wrapper."""

    run: str = ""  # run or export of the expert


class Expert(rl.Transform):
    """Adds the expert's action for the observation of each step to info, as `expert_action`."""

    Config = ExpertConfig

    def __init__(self, env: rl.Env, config: ExpertConfig) -> None:
        super().__init__(env)
        if not config.run:
            raise rl.UsageError("expert: name the run of the expert: --wrap expert:run=RUN")
        self.expert = rl.load(config.run)
        self.obs: Any = None
        self.is_first: Any = None
        self.labels: list[Any] = []

    @staticmethod
    def in_evaluation(config: object) -> None:
        """Omit the wrapper, because evaluations do not learn."""

    def reset(self, seed: int) -> rl.Timestep:
        return self.remember(self.env.reset(seed))

    def step(self, action: rl.Array) -> rl.Timestep:
        actions, _ = self.expert.predict(self.obs, episode_start=self.is_first)
        self.labels = list(rl.canonical_actions(actions, self.action_space))
        return self.remember(self.env.step(action))

    def remember(self, now: rl.Timestep) -> rl.Timestep:
        self.obs = rl.tree_map(np.copy, now.obs)
        self.is_first = now.is_first.copy()
        return now

    def info(self, key: str) -> list[Any]:
        return self.labels if key == "expert_action" else super().info(key)

    def info_names(self) -> list[str]:
        return [*super().info_names(), "expert_action"]

    def state_dict(self) -> rl.State:
        own = {"obs": rl.tree_map(np.copy, self.obs), "is_first": self.is_first}
        return super().state_dict() | {**own, "expert": self.expert.state_dict()}

    def load_state_dict(self, state: rl.State) -> None:
        super().load_state_dict(state)
        self.obs = state["obs"]
        self.is_first = state["is_first"]
        self.expert.load_state_dict(state["expert"])

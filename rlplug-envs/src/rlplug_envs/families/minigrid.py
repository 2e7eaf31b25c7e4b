"""MiniGrid and BabyAI: grid worlds, observed without the text of the mission."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from rlplug_core.types import GymEnv

#: The module of their environments, and the entry of observations with the text.
MODULE = "minigrid"
MISSION = "mission"


class WithoutMission(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observations without their text, which has no fixed shape: the image and the direction remain."""

    def __init__(self, env: GymEnv) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Dict)
        self.observation_space = spaces.Dict(
            {name: part for name, part in space.items() if name != MISSION}
        )

    def observation(self, observation: Any) -> object:
        return {name: part for name, part in observation.items() if name != MISSION}


def without_mission(env: GymEnv) -> GymEnv:
    """Return the environment without the entry `mission`, if it has one."""
    space = env.observation_space
    return (
        WithoutMission(env) if isinstance(space, spaces.Dict) and MISSION in space.spaces else env
    )

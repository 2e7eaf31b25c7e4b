"""MiniGrid and BabyAI: grid worlds, observed without the text of the mission."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from rlplug_core.types import GymEnv

#: Where their environments are defined, and what installs it.
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


def limit(env: GymEnv) -> int:
    """Return the steps after which a world truncates itself; 0 for levels of BabyAI with a limit for each mission."""
    from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

    world: Any = env.unwrapped
    own = isinstance(world, RoomGridLevel) and not world.fixed_max_steps
    return 0 if own else int(world.max_steps)


def without_mission(env: GymEnv) -> GymEnv:
    """Return the environment without the entry `mission`, if it has one."""
    space = env.observation_space
    return (
        WithoutMission(env) if isinstance(space, spaces.Dict) and MISSION in space.spaces else env
    )

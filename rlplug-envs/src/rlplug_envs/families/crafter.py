"""Crafter, which was written for Gymnasium's predecessor: registered, with the attributes of a `gymnasium.Env`."""

from __future__ import annotations

from importlib import import_module
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from rlplug_core.types import Array

#: The package; its two ids differ in whether achievements give rewards.
MODULE = "crafter"
IDS = {"CrafterReward-v1": True, "CrafterNoReward-v1": False}
#: Steps after which an episode is cut.
LIMIT = 10_000


def register() -> None:
    """Register its environments under their original names; a second call changes nothing."""
    for id in IDS.keys() - gymnasium.registry.keys():
        gymnasium.register(
            id, f"{__name__}:Crafter", max_episode_steps=LIMIT, kwargs={"reward": IDS[id]}
        )


class Crafter(gymnasium.Env[Array, Any]):
    """A world with food, tools and monsters; images [height, width, 3].

    The `info` of an episode says how many of the achievements are unlocked, and which.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        reward: bool = True,
        area: tuple[int, int] = (64, 64),
        view: tuple[int, int] = (9, 9),
        size: tuple[int, int] = (64, 64),
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = render_mode
        self.options: dict[str, Any] = {
            "reward": reward,
            "area": area,
            "view": view,
            "size": size,
            "length": None,
        }
        self.world: Any = import_module(MODULE).Env(seed=0, **self.options)
        self.observation_space = spaces.Box(0, 255, (size[1], size[0], 3), np.uint8)
        self.action_space = spaces.Discrete(len(self.world.action_names))

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, object]]:
        super().reset(seed=seed)
        if seed is not None:  # a world gets its seed only from its constructor
            self.world = import_module(MODULE).Env(seed=seed, **self.options)
        return self.world.reset(), {}

    def step(
        self,
        action: Any,
    ) -> tuple[Array, SupportsFloat, bool, bool, dict[str, object]]:
        obs, reward, _, info = self.world.step(int(action))
        unlocked = {f"unlocked_{name}": count > 0 for name, count in info["achievements"].items()}
        return (
            obs,
            reward,
            info["discount"] == 0,
            False,
            {"unlocked": sum(unlocked.values()), **unlocked},
        )

    def render(self) -> Array:
        return self.world.render((600, 600))

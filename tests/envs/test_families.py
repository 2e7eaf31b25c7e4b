"""Environments of other packages run, continue exactly or give the reason, and print nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.plugins.presets import preset
from rlplug_core.plugins.spec import WrapperSpec, wrap_env
from rlplug_envs.capture.decoder import restore
from rlplug_envs.capture.encoder import capture
from rlplug_envs.capture.state_format import Uncapturable
from rlplug_envs.families.classic import Gymnasium
from rlplug_envs.vector import SerialEnvs
from tests.cli.warm import Fork
from tests.envs.continuing import continue_in_new_process

GRIDS = ("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-MemoryS7-v0", "BabyAI-GoToObj-v0")
GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


def test_grids_continue_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    """Their objects are at other places in the new environment."""
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    results = continue_in_new_process(fork, [(id, 2) for id in GRIDS], tmp_path)
    assert any(ended for _, ended in results.values())


def test_grid_observation_leaves_the_mission_out() -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    env = Gymnasium().make("MiniGrid-DoorKey-5x5-v0", 1)
    assert isinstance(env.spec.obs, spaces.Dict)
    assert set(env.spec.obs.spaces) == {"direction", "image"}
    assert env.reset(0).obs["image"].shape == (1, 7, 7, 3)


@pytest.mark.parametrize("id", ["MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToObj-v0"])
def test_preset_makes_grid_tiles_one_hot(id: str) -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    words = [WrapperSpec.parse(word) for word in preset("some.module:Algorithm", id)["wrap"]]
    image = wrap_env(Gymnasium().make(id, 1), words).reset(0).obs["image"]
    assert image.shape == (1, 7, 7, 20)
    assert (image.reshape(-1, 20).sum(1) == 3).all()
    assert image.max() == 1


@pytest.mark.slow
def test_minatar_continues_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    pytest.importorskip("minatar", reason="the extra rlplug-envs[minatar] is not installed")
    results = continue_in_new_process(fork, [(f"MinAtar/{game}-v1", 1) for game in GAMES], tmp_path)
    assert all(ended for name, (_, ended) in results.items() if "Breakout" in name)


@pytest.mark.filterwarnings("ignore")  # of the package about itself
def test_pybullet_is_inexact_with_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pybullet_envs_gymnasium", reason="the extra rlplug-envs[pybullet] is not installed")
    env = Gymnasium().make("InvertedPendulumBulletEnv-v0", 2)
    env.reset(0)
    env.step(np.zeros((2, 1), np.float32))
    assert env.spec.inexact == "InvertedPendulumBulletEnv-v0: PyBullet does not expose the state of its simulation"
    assert capfd.readouterr().out == ""


def test_crafter_runs() -> None:
    pytest.importorskip("crafter", reason="the extra rlplug-envs[crafter] is not installed")
    env = Gymnasium({"max_episode_steps": 3}).make("CrafterReward-v1", 1)
    first = env.reset(0).obs.copy()
    assert (first.shape, first.dtype, env.spec.limit) == ((1, 64, 64, 3), np.uint8, 3)
    now = [env.step(np.zeros(1, np.int64)) for _ in range(3)][-1]
    assert (now.terminated[0], now.truncated[0]) == (False, True)
    assert now.episodes[0].info["unlocked"] >= 0
    assert (env.reset(0).obs == first).all()
    assert len({env.reset(seed).obs.tobytes() for seed in range(5)}) > 1


class Thing:
    """An object on a shelf."""

    def __init__(self, weight: int) -> None:
        self.weight = weight


class Box(Thing):
    """Another class of thing."""


class Shelf(gymnasium.Env[Any, Any]):
    """Has a list of things."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *things: Thing | None) -> None:
        self.things = list(things)


def test_restore_builds_objects_of_the_environments_package() -> None:
    heavy = Thing(3)
    saved = Shelf(heavy, Box(4), None, heavy)
    fresh = Shelf(None, Thing(1), Thing(2))
    restore(fresh, capture(saved))
    assert [type(thing) for thing in fresh.things] == [Thing, Box, type(None), Thing]
    assert [getattr(thing, "weight", 0) for thing in fresh.things] == [3, 4, 0, 3]
    assert fresh.things[0] is fresh.things[3]


def test_restore_separates_objects_that_were_shared() -> None:
    same = Thing(0)
    fresh = Shelf(same, same)
    restore(fresh, capture(Shelf(Thing(1), Thing(2))))
    assert [thing.weight for thing in fresh.things if thing] == [1, 2]


def test_restore_does_not_build_objects_of_other_packages() -> None:
    saved, fresh = Shelf(None), Shelf(None)
    state = capture(saved)
    state["attributes"]["things"] = [{"~": "object", "type": "pathlib.PurePosixPath", "attributes": {}}]
    with pytest.raises(Uncapturable, match=r"attribute 'things' was a pathlib.PurePosixPath, here it is a NoneType"):
        restore(fresh, state)


def test_dynamic_obstacles_are_exact() -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    env = Gymnasium().make("MiniGrid-Dynamic-Obstacles-5x5-v0", 2)
    assert isinstance(env, SerialEnvs)
    assert env.spec.inexact == ""

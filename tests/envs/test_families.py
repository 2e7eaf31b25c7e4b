"""Families of environments from other packages: they run, continue exactly or say why not, and keep quiet."""

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
from tests.envs.continuing import continued_afresh

GRIDS = ("MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-MemoryS7-v0", "BabyAI-GoToObj-v0")
GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


def test_grids_continue_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    """Though the things in them lie elsewhere in the fresh environment."""
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    told = continued_afresh(fork, [(id, 2) for id in GRIDS], tmp_path)
    assert any(ended for _, ended in told.values())


def test_a_grid_is_seen_without_its_mission() -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    env = Gymnasium().make("MiniGrid-DoorKey-5x5-v0", 1)
    assert isinstance(env.spec.obs, spaces.Dict)
    assert set(env.spec.obs.spaces) == {"direction", "image"}
    assert env.reset(0).obs["image"].shape == (1, 7, 7, 3)


@pytest.mark.parametrize("id", ["MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToObj-v0"])
def test_a_grid_shows_its_tiles_as_zeros_and_ones(id: str) -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    words = [WrapperSpec.parse(word) for word in preset("some.module:Algorithm", id)["wrap"]]
    image = wrap_env(Gymnasium().make(id, 1), words).reset(0).obs["image"]
    assert image.shape == (1, 7, 7, 20)
    assert (image.reshape(-1, 20).sum(1) == 3).all()
    assert image.max() == 1


@pytest.mark.slow
def test_minatar_continues_exactly_in_another_process(fork: Callable[..., Fork], tmp_path: Path) -> None:
    pytest.importorskip("minatar", reason="the extra rlplug-envs[minatar] is not installed")
    told = continued_afresh(fork, [(f"MinAtar/{game}-v1", 1) for game in GAMES], tmp_path)
    assert all(ended for name, (_, ended) in told.items() if "Breakout" in name)


@pytest.mark.filterwarnings("ignore")  # of the package about itself
def test_pybullet_runs_and_says_why_it_is_not_exact(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pybullet_envs_gymnasium", reason="the extra rlplug-envs[pybullet] is not installed")
    env = Gymnasium().make("InvertedPendulumBulletEnv-v0", 2)
    env.reset(0)
    env.step(np.zeros((2, 1), np.float32))
    assert env.spec.inexact == "InvertedPendulumBulletEnv-v0: PyBullet does not expose the state of its simulation"
    assert capfd.readouterr().out == ""


def test_crafter_is_an_environment() -> None:
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
    """Lies on a shelf."""

    def __init__(self, weight: int) -> None:
        self.weight = weight


class Box(Thing):
    """Another kind of thing."""


class Shelf(gymnasium.Env[Any, Any]):
    """Holds what it was given in this episode."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *things: Thing | None) -> None:
        self.things = list(things)


def test_things_of_the_environments_own_package_are_built_anew() -> None:
    heavy = Thing(3)
    one, other = Shelf(heavy, Box(4), None, heavy), Shelf(None, Thing(1), Thing(2))
    kept = other.things[1]
    restore(other, capture(one))
    assert [type(thing) for thing in other.things] == [Thing, Box, type(None), Thing]
    assert [getattr(thing, "weight", 0) for thing in other.things] == [3, 4, 0, 3]
    assert other.things[0] is other.things[3]
    assert kept is not None


def test_two_things_stay_two_where_the_fresh_environment_has_one() -> None:
    same = Thing(0)
    other = Shelf(same, same)
    restore(other, capture(Shelf(Thing(1), Thing(2))))
    assert [thing.weight for thing in other.things if thing] == [1, 2]


def test_nothing_of_another_package_is_built() -> None:
    one, other = Shelf(None), Shelf(None)
    state = capture(one)
    state["attributes"]["things"] = [{"~": "object", "type": "pathlib.PurePosixPath", "attributes": {}}]
    with pytest.raises(Uncapturable, match=r"attribute 'things' was a pathlib.PurePosixPath, here it is a NoneType"):
        restore(other, state)


def test_rows_of_things_are_exact() -> None:
    pytest.importorskip("minigrid", reason="the extra rlplug-envs[minigrid] is not installed")
    env = Gymnasium().make("MiniGrid-Dynamic-Obstacles-5x5-v0", 2)
    assert isinstance(env, SerialEnvs)
    assert env.spec.inexact == ""

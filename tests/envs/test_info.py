"""Numbers that an environment's last `info` says are the episode's, from single environments and from vectors."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rlplug_core.types import Episode
from rlplug_envs.adapter import Adapter
from rlplug_envs.vector import SerialEnvs


class Game(gymnasium.Env[Any, Any]):
    """Ends after three steps, the second episode after four; its score grows by the action plus 1."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.played, self.score, self.steps = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.score, self.steps = 0, 0
        return np.zeros(1, np.float32), {"score": -1}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.score += int(action) + 1
        self.steps += 1
        over = self.steps == 3 + self.played
        info: dict[str, Any] = {"score": np.int64(self.score), "step": self.steps, "text": "no number", "odd": np.nan}
        if over:
            self.played = 1
            info |= {"is_success": self.score > 4, "episode": {"r": 1.0}}
        return np.full(1, self.steps, np.float32), 0.0, over, False, info


def played(env: Any) -> list[Episode]:
    found: list[Episode] = []
    env.reset(0)
    for _ in range(9):
        found += env.step(np.array([0, 1])).episodes
    return found


WANTED = [
    (0, 3, False, {"score": 3.0, "step": 3.0, "is_success": 0.0}),
    (1, 3, True, {"score": 6.0, "step": 3.0, "is_success": 1.0}),
    (0, 4, False, {"score": 4.0, "step": 4.0, "is_success": 0.0}),
    (1, 4, True, {"score": 8.0, "step": 4.0, "is_success": 1.0}),
]


def told(episodes: list[Episode]) -> list[Any]:
    return [(one.row, one.length, one.success, one.info) for one in episodes]


def test_rows_read_the_info_in_which_an_episode_ended() -> None:
    env = SerialEnvs(Game, 2)
    for row in env.envs:
        row.unwrapped.played = 0  # type: ignore[attr-defined]  # the trial of whether it can be captured has played
    assert told(played(env)) == WANTED


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_is_read_in_every_mode(mode: AutoresetMode) -> None:
    def make() -> Any:
        return SyncVectorEnv([Game, Game], autoreset_mode=mode)

    assert told(played(Adapter(make, "Game", inexact="a test"))) == WANTED


class Talks(SyncVectorEnv):
    """Says besides what is about no row, and has a dictionary for each row that ended."""

    def step(self, actions: Any) -> Any:
        *found, info = super().step(actions)
        info |= {"weights": np.arange(5.0), "one": np.ones(1)}
        if "final_info" in info:
            last, said = info["final_info"], info["_final_info"]
            each = [
                {key: last[key][row] for key in ("score", "step", "is_success")} if one else None
                for row, one in enumerate(said)
            ]
            info["final_info"] = np.array(each, object)
        return (*found, info)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_may_say_what_is_about_no_row_and_give_each_row_a_dictionary(mode: AutoresetMode) -> None:
    env = Adapter(lambda: Talks([Game, Game], autoreset_mode=mode), "Game", inexact="a test")
    assert told(played(env)) == WANTED


class Long(Game):
    """Would take nine steps."""

    def __init__(self) -> None:
        super().__init__()
        self.played = 6


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_row_that_is_cut_is_read_where_another_one_ends(mode: AutoresetMode) -> None:
    """`final_info` is about that other row alone."""

    def make() -> Any:
        return SyncVectorEnv([Game, Long], autoreset_mode=mode)

    env = Adapter(make, "Game", inexact="a test")
    env.limit(3)
    first = told(played(env))[:2]
    assert first == [WANTED[0], (1, 3, None, {"score": 6.0, "step": 3.0})]


def test_episode_info_survives_a_checkpoint() -> None:
    episode = Episode(1, 2.0, 3, True, {"score": 4.0})
    assert Episode(*episode.plain()) == episode


class Recycling(Game):
    """Keeps one dictionary, which a reset clears."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        self.kept.clear()
        return obs, self.kept

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *found, info = super().step(action)
        self.kept.update(info)
        return (*found, self.kept)  # type: ignore[return-value]


def serial(kind: Any) -> Any:
    env = SerialEnvs(kind, 2, inexact="a test")
    for row in env.envs:
        row.unwrapped.played = 0  # type: ignore[attr-defined]
    return env


ENVS: dict[str, Any] = {
    "serial": lambda: serial(Game),
    "recycling": lambda: serial(Recycling),
    **{
        f"{kind.__name__}-{mode.name}": lambda kind=kind, mode=mode: Adapter(
            lambda: kind([Game, Game], autoreset_mode=mode), "Game", inexact="a test"
        )
        for kind in (SyncVectorEnv, Talks)
        for mode in AutoresetMode
    },
}


@pytest.mark.parametrize("name", ENVS)
def test_each_transition_has_the_info_of_its_own_step(name: str) -> None:
    """Also the last one of an episode, after which a row may have been reset in the same call."""
    env = ENVS[name]()
    env.reset(0)
    seen: list[list[Any]] = [[], []]
    for _ in range(9):
        now = env.step(np.array([0, 1]))
        for row, value in enumerate(env.info("score")):
            if now.valid[row]:
                seen[row].append(value)
        assert env.info("unheard of") == [None, None]
    scores = [1, 2, 3, 1, 2, 3, 4, 1, 2][: len(seen[0])]
    assert len(scores) > 6
    assert seen == [scores, [2 * one for one in scores]]
    assert "score" in env.info_names()
    assert not [one for one in env.info_names() if one.startswith(("_", "final"))]

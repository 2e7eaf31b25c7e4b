"""Episodes have the numbers of their last `info`, from single environments and from vectors."""

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
    """Terminates after three steps, in the second episode after four; its score grows by the action plus 1."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.played = 0
        self.score = 0
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.score = 0
        self.steps = 0
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


def play(env: Any) -> list[Episode]:
    episodes: list[Episode] = []
    env.reset(0)
    for _ in range(9):
        episodes += env.step(np.array([0, 1])).episodes
    return episodes


EXPECTED = [
    (0, 3, False, {"score": 3.0, "step": 3.0, "is_success": 0.0}),
    (1, 3, True, {"score": 6.0, "step": 3.0, "is_success": 1.0}),
    (0, 4, False, {"score": 4.0, "step": 4.0, "is_success": 0.0}),
    (1, 4, True, {"score": 8.0, "step": 4.0, "is_success": 1.0}),
]


def as_tuples(episodes: list[Episode]) -> list[Any]:
    return [(episode.row, episode.length, episode.success, episode.info) for episode in episodes]


def test_rows_read_the_last_info_of_an_episode() -> None:
    env = SerialEnvs(Game, 2)
    for row in env.envs:
        row.unwrapped.played = 0  # type: ignore[attr-defined]  # the self-test has played
    assert as_tuples(play(env)) == EXPECTED


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vectors_read_the_last_info_in_every_mode(mode: AutoresetMode) -> None:
    def make() -> Any:
        return SyncVectorEnv([Game, Game], autoreset_mode=mode)

    assert as_tuples(play(Adapter(make, "Game", inexact="a test"))) == EXPECTED


class FinalInfoPerRow(SyncVectorEnv):
    """Adds entries that are not per row, and gives `final_info` as one dictionary per row."""

    def step(self, actions: Any) -> Any:
        *found, info = super().step(actions)
        info |= {"weights": np.arange(5.0), "one": np.ones(1)}
        if "final_info" in info:
            last, present = info["final_info"], info["_final_info"]
            each = [
                {key: last[key][row] for key in ("score", "step", "is_success")} if ended else None
                for row, ended in enumerate(present)
            ]
            info["final_info"] = np.array(each, object)
        return (*found, info)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_info_may_have_other_entries_and_dictionaries(mode: AutoresetMode) -> None:
    env = Adapter(lambda: FinalInfoPerRow([Game, Game], autoreset_mode=mode), "Game", inexact="a test")
    assert as_tuples(play(env)) == EXPECTED


class Long(Game):
    """Terminates after nine steps."""

    def __init__(self) -> None:
        super().__init__()
        self.played = 6


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_truncated_row_is_read_when_another_row_ends(mode: AutoresetMode) -> None:
    """`final_info` has only the other row."""

    def make() -> Any:
        return SyncVectorEnv([Game, Long], autoreset_mode=mode)

    env = Adapter(make, "Game", inexact="a test")
    env.limit(3)
    first = as_tuples(play(env))[:2]
    assert first == [EXPECTED[0], (1, 3, None, {"score": 6.0, "step": 3.0})]


def test_episode_equals_its_plain_form() -> None:
    episode = Episode(1, 2.0, 3, True, {"score": 4.0})
    assert Episode(*episode.plain()) == episode


class Recycling(Game):
    """Returns the same dictionary each time; a reset clears it."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = super().reset(seed=seed)
        self.shared.clear()
        return obs, self.shared

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *found, info = super().step(action)
        self.shared.update(info)
        return (*found, self.shared)  # type: ignore[return-value]


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
        for kind in (SyncVectorEnv, FinalInfoPerRow)
        for mode in AutoresetMode
    },
}


@pytest.mark.parametrize("name", ENVS)
def test_each_transition_has_the_info_of_its_step(name: str) -> None:
    """Also the last transition of an episode, after which the same call may have reset the row."""
    env = ENVS[name]()
    env.reset(0)
    values: list[list[Any]] = [[], []]
    for _ in range(9):
        now = env.step(np.array([0, 1]))
        for row, value in enumerate(env.info("score")):
            if now.valid[row]:
                values[row].append(value)
        assert env.info("unknown") == [None, None]
    scores = [1, 2, 3, 1, 2, 3, 4, 1, 2][: len(values[0])]
    assert len(scores) > 6
    assert values == [scores, [2 * score for score in scores]]
    assert "score" in env.info_names()
    assert not [name for name in env.info_names() if name.startswith(("_", "final"))]

"""A controller sets an attribute of the environments between episodes, in every process; resume keeps it exactly."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlplug_core.clock import Steering
from rlplug_core.config.options import Config, Count
from rlplug_core.errors import Interrupted, RlplugError, UsageError
from rlplug_core.protocols import Controller
from rlplug_core.runs.api import Run, resume, train
from rlplug_core.runs.checkpoint import read as components
from rlplug_core.runs.journal import read
from rlplug_core.testing.kit.trees import difference, leaves
from rlplug_core.types import Episode
from rlplug_envs.vector import SerialEnvs

HERE = Path(__file__).resolve()
#: Environment variable: a controller interrupts this process at this env step.
STOP_AT = "TEST_CURRICULUM_STOP_AT"


class Hill(gymnasium.Env[Any, Any]):
    """The level sets the shortest length of an episode; an episode counts the steps at which its level differs."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.level = 1

    @property
    def fixed(self) -> int:
        return 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.changes = 0
        self.steps = 0
        self.first_level = self.level
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.changes += self.level != self.first_level
        over = self.steps > self.level and bool(self.np_random.random() < 0.5)
        info = {"level": self.first_level, "changes": self.changes} if over else {}
        return np.full(1, min(self.steps, 100), np.float32), float(action), over, False, info


@dataclass(frozen=True)
class StagesConfig(Config):
    """Options of Stages."""

    episodes: Count = 6  # episodes per level
    first: Count = 2  # the first level


class Stages:
    """Raises the level by one after a number of episodes."""

    Config = StagesConfig
    reason = ""

    def __init__(self, config: StagesConfig) -> None:
        self.config = config
        self.count = 0

    def ended(self, episodes: Sequence[Episode], clock: Steering) -> None:
        self.count += len(episodes)
        if clock.steps >= float(os.environ.get(STOP_AT, "inf")):
            os.kill(os.getpid(), signal.SIGTERM)

    def settings(self) -> Mapping[str, object]:
        return {"level": self.config.first + self.count // self.config.episodes}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Missing(Stages):
    """Sets an attribute that does not exist."""

    def settings(self) -> Mapping[str, object]:
        return {"levle": 3}


class ReadOnly(Stages):
    """Sets an attribute that cannot be set."""

    def settings(self) -> Mapping[str, object]:
        return {"fixed": 3}


#: Lets a type checker compare the class with the protocol.
CONTROLLER: Controller = Stages(StagesConfig())
OPTIONS: dict[str, Any] = {
    "total_timesteps": 360, "num_envs": 4, "eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 2,
    "log_every": 40, "checkpoint_every": 60, "controller": [f"{HERE}:Stages:episodes=6"],
}  # fmt: skip
REPRODUCIBLE: dict[str, dict[str, Any]] = {
    "sync": {},
    "env workers": {"env_workers": 2},
    "async": {"runner": "async", "workers": 2, "inline": True, "num_envs": 2},
}
PROCESSES: dict[str, tuple[str, dict[str, Any]]] = {
    "async": ("a2c", {"runner": "async", "workers": 2, "num_envs": 1, "total_timesteps": 2000}),
    "decoupled": ("impala", {"runner": "decoupled", "actors": 2, "num_envs": 1, "total_timesteps": 2000}),
}


def train_hill(out: Path, algorithm: str = "a2c", env: str = "Hill", name: str | None = None, **options: Any) -> Run:
    return train(algorithm, f"{HERE}:{env}", {**OPTIONS, **options}, out=out, name=name, hooks=False)


def final_state(run: Run) -> dict[str, Any]:
    saved = next(path for path in run.directory.checkpoints_path.iterdir() if path.name.startswith("final"))
    state = components(saved)[0]
    state["events"].pop("wall")
    return {name: state[name] for name in ("learner", "events")}


def settings(run: Run) -> list[tuple[int, Any]]:
    return [(record.step, record.data) for record in read(run.journal, kinds=("settings",))]


def test_levels_rise_only_between_episodes(tmp_path: Path) -> None:
    run = train_hill(tmp_path)
    episodes = run.episodes()
    assert set(episodes["info/changes"]) == {0.0}
    levels = episodes["info/level"]
    assert levels[0] == 2  # from the very first episode on
    assert levels[-1] > levels[10] > 2
    recorded = settings(run)
    assert recorded[0] == (0, {"level": 2})
    assert [data["level"] for _, data in recorded] == [*range(2, 2 + len(recorded))]
    ends = episodes["steps"]
    for step, data in recorded[1:]:  # at the step that ended the sixth episode of a level
        assert (ends <= step).sum() >= 6 * (data["level"] - 2) > (ends < step).sum()


@pytest.mark.parametrize("kind", REPRODUCIBLE)
def test_resumed_run_has_the_same_levels_and_weights(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = "a3c" if kind == "async" else "a2c"
    complete = train_hill(tmp_path, algorithm, **REPRODUCIBLE[kind])
    for at in (92, 148):
        monkeypatch.setenv(STOP_AT, str(at))
        with pytest.raises(Interrupted):
            train_hill(tmp_path, algorithm, **REPRODUCIBLE[kind], name=f"part-{at}")
        monkeypatch.delenv(STOP_AT)
        resumed = resume(tmp_path / f"part-{at}", hooks=False)
        assert np.array_equal(resumed.episodes()["info/level"], complete.episodes()["info/level"])
        assert np.array_equal(resumed.episodes()["steps"], complete.episodes()["steps"])
        assert difference(leaves(final_state(resumed)), leaves(final_state(complete))) == ""
        assert settings(resumed) == settings(complete)


def both_workers_reached_level_3(episodes: Any) -> bool:
    """Return whether an episode is beyond level 3, and both workers have played at level 3."""
    level = episodes["info/level"]
    return bool(level.max() > 3) and set(episodes["workers"][level > 2]) == {0, 1}


@pytest.mark.parametrize("kind", PROCESSES)
def test_processes_of_workers_keep_their_levels(kind: str, tmp_path: Path) -> None:
    algorithm, options = PROCESSES[kind]
    run = train_hill(tmp_path, algorithm, **options, controller=[f"{HERE}:Stages:episodes=40"])
    steps = 2000
    while not both_workers_reached_level_3(episodes := run.episodes()) and steps < 30_000:  # settings arrive late
        steps += 600
        resume(run, total_timesteps=steps, hooks=False)
    assert set(episodes["info/changes"]) == {0.0}
    reached = episodes["info/level"].max()
    assert reached > 3
    assert set(episodes["workers"][episodes["info/level"] > 2]) == {0, 1}
    resume(run, total_timesteps=steps + 600, hooks=False)
    later = run.episodes()["info/level"][len(episodes["steps"]) + 4 :]  # four episodes end at the old level
    assert later.min() >= reached - 1


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        ("Missing", "has no attribute 'levle' to set; did you mean 'level'"),
        ("ReadOnly", "Hill refuses to set 'fixed' to 3"),
    ],
)
def test_invalid_settings_are_refused(controller: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RlplugError) as raised:
        train_hill(tmp_path / "runs", controller=[f"{HERE}:{controller}"])
    assert message in str(raised.value)


def test_foreign_vector_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot have 'level' set while it trains"):
        train_hill(tmp_path / "runs", env="many")
    assert not (tmp_path / "runs").exists()


def many(num_envs: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([Hill] * num_envs)


def test_rows_restore_their_own_settings() -> None:
    """The state is saved while some rows have the new level and others still play with the old level."""
    env = SerialEnvs(Hill, 3)
    env.reset(0)
    env.configure({"level": 5})
    while not 0 < sum(row.unwrapped.level == 5 for row in env.envs) < 3:  # type: ignore[attr-defined]
        env.step(np.zeros(3, np.int64))
    copy = SerialEnvs(Hill, 3)
    copy.load_state_dict(env.state_dict())
    for _ in range(40):
        expected = env.step(np.zeros(3, np.int64))
        timestep = copy.step(np.zeros(3, np.int64))
        assert [each.info for each in timestep.episodes] == [each.info for each in expected.episodes]
    assert "settings" not in SerialEnvs(Hill, 1).state_dict()

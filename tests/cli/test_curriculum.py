"""A controller sets an attribute of the environments between episodes: recorded, resumed exactly, in every process."""

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
#: Names the env step from which on a controller interrupts this process, as a user would.
STOP_AT = "TEST_CURRICULUM_STOP_AT"


class Hill(gymnasium.Env[Any, Any]):
    """An episode is as long as its level and a chance say; it counts the steps at which it has another level."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.level = 1

    @property
    def fixed(self) -> int:
        return 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.changes, self.steps, self.begun = 0, 0, self.level
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.changes += self.level != self.begun
        over = self.steps > self.level and bool(self.np_random.random() < 0.5)
        info = {"level": self.begun, "changes": self.changes} if over else {}
        return np.full(1, min(self.steps, 100), np.float32), float(action), over, False, info


@dataclass(frozen=True)
class StagesConfig(Config):
    """Options of Stages."""

    episodes: Count = 6  # episodes per level
    first: Count = 2  # the level to begin with


class Stages:
    """The level rises by one after each so many episodes."""

    Config = StagesConfig
    reason = ""

    def __init__(self, config: StagesConfig) -> None:
        self.config, self.count = config, 0

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


class Lost(Stages):
    """Sets an attribute that is not there."""

    def settings(self) -> Mapping[str, object]:
        return {"levle": 3}


class Firm(Stages):
    """Sets an attribute that cannot be set."""

    def settings(self) -> Mapping[str, object]:
        return {"fixed": 3}


#: A type checker holds the class to the protocol here.
CONTROLLER: Controller = Stages(StagesConfig())
OPTIONS: dict[str, Any] = {
    "total_timesteps": 360, "num_envs": 4, "eval_every": 200, "eval_episodes": 2, "final_eval_episodes": 2,
    "log_every": 40, "checkpoint_every": 60, "controller": [f"{HERE}:Stages:episodes=6"],
}  # fmt: skip
EXACT: dict[str, dict[str, Any]] = {
    "sync": {},
    "env workers": {"env_workers": 2},
    "async": {"runner": "async", "workers": 2, "inline": True, "num_envs": 2},
}
PROCESSES: dict[str, tuple[str, dict[str, Any]]] = {
    "async": ("a2c", {"runner": "async", "workers": 2, "num_envs": 1, "total_timesteps": 2000}),
    "decoupled": ("impala", {"runner": "decoupled", "actors": 2, "num_envs": 1, "total_timesteps": 2000}),
}


def trained(out: Path, algorithm: str = "a2c", env: str = "Hill", name: str | None = None, **options: Any) -> Run:
    return train(algorithm, f"{HERE}:{env}", {**OPTIONS, **options}, out=out, name=name, hooks=False)


def final(run: Run) -> dict[str, Any]:
    saved = next(path for path in run.directory.checkpoints_path.iterdir() if path.name.startswith("final"))
    found = components(saved)[0]
    found["events"].pop("wall")
    return {name: found[name] for name in ("learner", "events")}


def settings(run: Run) -> list[tuple[int, Any]]:
    return [(record.step, record.data) for record in read(run.journal, kinds=("settings",))]


def test_levels_rise_between_episodes_and_never_within_one(tmp_path: Path) -> None:
    run = trained(tmp_path)
    found = run.episodes()
    assert set(found["info/changes"]) == {0.0}
    levels = found["info/level"]
    assert levels[0] == 2  # from the very first episode on
    assert levels[-1] > levels[10] > 2
    told = settings(run)
    assert told[0] == (0, {"level": 2})
    assert [data["level"] for _, data in told] == [*range(2, 2 + len(told))]
    ends = found["steps"]
    for step, data in told[1:]:  # recorded at the step that ended the sixth episode of a level
        assert (ends <= step).sum() >= 6 * (data["level"] - 2) > (ends < step).sum()


@pytest.mark.parametrize("kind", EXACT)
def test_a_resumed_run_has_the_same_levels_to_the_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = "a3c" if kind == "async" else "a2c"
    whole = trained(tmp_path, algorithm, **EXACT[kind])
    for at in (92, 148):
        monkeypatch.setenv(STOP_AT, str(at))
        with pytest.raises(Interrupted):
            trained(tmp_path, algorithm, **EXACT[kind], name=f"part-{at}")
        monkeypatch.delenv(STOP_AT)
        part = resume(tmp_path / f"part-{at}", hooks=False)
        assert np.array_equal(part.episodes()["info/level"], whole.episodes()["info/level"])
        assert np.array_equal(part.episodes()["steps"], whole.episodes()["steps"])
        assert difference(leaves(final(part)), leaves(final(whole))) == ""
        assert settings(part) == settings(whole)


def advanced(found: Any) -> bool:
    """Return whether some episode is beyond the third level, and both workers have begun that one."""
    level = found["info/level"]
    return bool(level.max() > 3) and set(found["workers"][level > 2]) == {0, 1}


@pytest.mark.parametrize("kind", PROCESSES)
def test_workers_in_processes_get_them_and_keep_them(kind: str, tmp_path: Path) -> None:
    algorithm, options = PROCESSES[kind]
    run, steps = trained(tmp_path, algorithm, **options, controller=[f"{HERE}:Stages:episodes=40"]), 2000
    while not advanced(found := run.episodes()) and steps < 30_000:  # workers are told in their own time
        steps += 600
        resume(run, total_timesteps=steps, hooks=False)
    assert set(found["info/changes"]) == {0.0}
    reached = found["info/level"].max()
    assert reached > 3
    assert set(found["workers"][found["info/level"] > 2]) == {0, 1}
    resume(run, total_timesteps=steps + 600, hooks=False)
    later = run.episodes()["info/level"][len(found["steps"]) + 4 :]  # those that ran are played to their end
    assert later.min() >= reached - 1


@pytest.mark.parametrize(
    ("controller", "said"),
    [
        ("Lost", "has no attribute 'levle' to set; did you mean 'level'"),
        ("Firm", "Hill refuses to set 'fixed' to 3"),
    ],
)
def test_impossible_settings_are_refused(controller: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RlplugError) as raised:
        trained(tmp_path / "runs", controller=[f"{HERE}:{controller}"])
    assert said in str(raised.value)


def test_a_vector_of_someone_elses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot have 'level' set while it trains"):
        trained(tmp_path / "runs", env="many")
    assert not (tmp_path / "runs").exists()


def many(num_envs: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([Hill] * num_envs)


def test_rows_take_over_what_each_row_had() -> None:
    """Saved while rows differ: two have heard of the new level, and one plays on with the old one."""
    env = SerialEnvs(Hill, 3)
    env.reset(0)
    env.configure({"level": 5})
    while not 0 < sum(row.unwrapped.level == 5 for row in env.envs) < 3:  # type: ignore[attr-defined]
        env.step(np.zeros(3, np.int64))
    other = SerialEnvs(Hill, 3)
    other.load_state_dict(env.state_dict())
    for _ in range(40):
        one, two = env.step(np.zeros(3, np.int64)), other.step(np.zeros(3, np.int64))
        assert [each.info for each in one.episodes] == [each.info for each in two.episodes]
    assert "settings" not in SerialEnvs(Hill, 1).state_dict()

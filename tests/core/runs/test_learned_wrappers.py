"""Checkpoints hold the learned state of wrappers; evaluations and `load` use it and do not change it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.runs import recorder
from rlplug_core.runs.api import Run, load, resume, train
from rlplug_core.runs.checkpoint import read
from rlplug_core.runs.run import plan_of
from tests.core import wraps
from tests.core.fakes import ENVS, TINY, assert_same

CENTERED = f"{wraps.HERE}:Centered"
OPTIONS: dict[str, Any] = {
    "total_timesteps": 400, "eval_episodes": 4, "final_eval_episodes": 4, "eval_every": 200, "wrap": (CENTERED,),
    "checkpoint_every": 200,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(TINY, f"{ENVS}:Chain", OPTIONS, out=tmp_path_factory.mktemp("runs"), hooks=False)


def components(run: Run, name: str) -> Any:
    path = next(file for file in run.directory.checkpoints_path.iterdir() if file.name.startswith(name))
    return read(path)[0]


def test_checkpoint_holds_learned_state(run: Run) -> None:
    final = components(run, "final")
    assert final["wrappers"]["count"] == final["actor"]["env"]["count"] > 400
    assert np.array_equal(final["wrappers"]["sum"], final["actor"]["env"]["sum"])


@pytest.mark.parametrize("checkpoint", ["best", "final"])
def test_loaded_policy_uses_learned_state(run: Run, checkpoint: str) -> None:
    env: Any = load(run, checkpoint)._env
    expected = components(run, checkpoint)["wrappers"]
    assert (env.count, env.frozen) == (expected["count"], True)
    obs = np.eye(5, dtype=np.float32)[:1]
    mean = expected["sum"] / expected["count"]
    assert np.allclose(env.observe(obs, np.ones(1, np.bool_)), obs - mean)


def test_evaluation_learns_nothing(run: Run) -> None:
    assert run.evaluate(4, seed=3) == run.evaluate(4, seed=3)
    env: Any = load(run)._env
    before = env.count
    env.reset(0)
    env.step(np.zeros(1, np.int64))
    assert env.count == before


def test_recorder_uses_learned_state(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain has no frames, so the film fails, but after its environment is ready."""
    learned = components(run, "final")["wrappers"]
    plan = plan_of(run)
    env: Any = plan.make_env(1)
    monkeypatch.setattr(recorder, "make_shown_env", lambda plan, mode: env)
    learner: Any = None
    assert recorder.Recorder(plan, tmp_path, 1).record(learner, 0, Clock(1), learned) is None
    assert (env.count, env.frozen) == (learned["count"], True)


def test_resumed_run_learns_exactly_the_same(run: Run, tmp_path: Path) -> None:
    options = {**OPTIONS, "total_timesteps": 800}
    full = train(TINY, f"{ENVS}:Chain", options, out=tmp_path / "a", hooks=False)
    resumed = train(TINY, f"{ENVS}:Chain", {**options, "max_episodes": 30}, out=tmp_path / "b", hooks=False)
    assert 0 < components(resumed, "final")["wrappers"]["count"] < components(full, "final")["wrappers"]["count"]
    resume(resumed, total_timesteps=800, hooks=False)
    expected = components(full, "final")
    found = components(resumed, "final")
    assert_same(expected["wrappers"], found["wrappers"])
    assert_same(expected["learner"], found["learner"])


def test_export_and_workers_refuse_learned_state(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="have learned state, which an export cannot contain"):
        run.export(tmp_path / "export")
    with pytest.raises(UsageError, match="each worker would learn separately; use --runner sync"):
        train(TINY, f"{ENVS}:Chain", {**OPTIONS, "runner": "async"}, out=tmp_path, hooks=False)


def test_learned_state_survives_restarted_environment(tmp_path: Path) -> None:
    """Two wrappers that learn, around others, and an environment that cannot save its state."""
    options = {**OPTIONS, "wrap": (CENTERED, f"{wraps.HERE}:Tenfold", CENTERED)}
    run = train(TINY, f"{wraps.HERE}:CannotSave", options, out=tmp_path, hooks=False)
    before = components(run, "final")["actor"]["env"]
    resume(run, total_timesteps=800, hooks=False)
    after = components(run, "final")["actor"]["env"]
    for _ in range(3):  # the outer wrapper, the one without state, the inner one
        if "count" in before:
            assert before["count"] > 400
            assert after["count"] == before["count"] + 401  # the steps, and the first observation after the restart
        before, after = before["env"], after["env"]
    assert after == {"inexact": "a test"}

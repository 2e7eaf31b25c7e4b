"""`--resume-exact`: episodes start again at each checkpoint if the environment cannot save its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import Interrupted, UsageError
from rlplug_core.runs.api import open_run, resume, train
from rlplug_core.runs.checkpoint import read
from rlplug_core.runs.journal import read as records
from tests.core import wraps
from tests.core.fakes import ENVS, TINY, TINY_Q, assert_same
from tests.core.runs.final import final_state

ENV = f"{wraps.HERE}:Terminates"
OPTIONS: dict[str, Any] = {
    "total_timesteps": 600, "num_envs": 3, "eval_every": 300, "eval_episodes": 2, "final_eval_episodes": 0,
    "checkpoint_every": 120, "log_every": 60,
}  # fmt: skip


def interrupt_run(out: Path, algorithm: str, at: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """Train a run that stops within a step; return its message."""
    monkeypatch.setenv(wraps.TERMINATE_IN, str(at))
    with pytest.raises(Interrupted) as caught:
        train(algorithm, ENV, {**OPTIONS, **options}, out=out, name="part", hooks=False)
    monkeypatch.delenv(wraps.TERMINATE_IN)
    return str(caught.value)


@pytest.mark.parametrize("algorithm", [TINY, TINY_Q])
@pytest.mark.parametrize("wrap", [(), (f"{wraps.HERE}:Centered",)])
def test_resumed_run_equals_uninterrupted_run(
    algorithm: str, wrap: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = {"resume_exact": True, "wrap": wrap}
    expected = train(algorithm, ENV, {**OPTIONS, **exact}, out=tmp_path, name="whole", hooks=False)
    message = interrupt_run(tmp_path, algorithm, 97, monkeypatch, **exact)  # step 291, after the checkpoint of step 240
    advice = "to continue from the last checkpoint, as --resume-exact asks: rlplug resume"
    assert f"stopped by SIGTERM at step 291; {advice}" in message
    resumed = open_run(tmp_path / "part")
    assert max(int(path.name[-12:]) for path in resumed.directory.checkpoints_path.glob("step-*")) == 240
    resumed = resume(resumed, hooks=False)
    assert_same(final_state(resumed), final_state(expected))
    ends = [[record.data for record in records(run.journal, kinds=("episodes",))] for run in (resumed, expected)]
    assert ends[0] == ends[1]
    assert read(next(resumed.directory.checkpoints_path.glob("final-*")))[1]["exact"]


def test_runs_differ_without_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train(TINY, ENV, OPTIONS, out=tmp_path, name="whole", hooks=False)
    message = interrupt_run(tmp_path, TINY, 97, monkeypatch)
    assert "at step 291, checkpoint saved; " in message
    resumed = resume(tmp_path / "part", hooks=False)
    with pytest.raises(AssertionError):
        assert_same(final_state(resumed), final_state(expected))


def test_does_not_affect_environments_with_saved_state(tmp_path: Path) -> None:
    runs = [
        train(TINY, f"{ENVS}:Chain", {**OPTIONS, "resume_exact": exact}, out=tmp_path, name=f"{exact}", hooks=False)
        for exact in (False, True)
    ]
    assert_same(*map(final_state, runs))


def test_async_runner_raises(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--resume-exact makes new environments, which needs --runner sync"):
        train(TINY, ENV, {**OPTIONS, "resume_exact": True, "runner": "async"}, out=tmp_path, hooks=False)

"""`--resume-exact`: where no state can be saved, episodes begin anew at each checkpoint, resumed there or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlplug_core.errors import Interrupted, UsageError
from rlplug_core.runs.api import Run, open_run, resume, train
from rlplug_core.runs.checkpoint import read
from rlplug_core.runs.journal import read as records
from tests.core import wraps
from tests.core.fakes import ENVS, TINY, TINY_Q, assert_same

ENV = f"{wraps.HERE}:Leaving"
OPTIONS: dict[str, Any] = {
    "total_timesteps": 600, "num_envs": 3, "eval_every": 300, "eval_episodes": 2, "final_eval_episodes": 0,
    "checkpoint_every": 120, "log_every": 60,
}  # fmt: skip


def final(run: Run) -> Any:
    saved = read(next(run.directory.checkpoints_path.glob("final-*")))[0]
    saved["events"].pop("wall")
    return saved


def interrupted(out: Path, algorithm: str, at: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """A run that stops in a step; what it says."""
    monkeypatch.setenv(wraps.LEAVE_IN, str(at))
    with pytest.raises(Interrupted) as caught:
        train(algorithm, ENV, {**OPTIONS, **options}, out=out, name="part", hooks=False)
    monkeypatch.delenv(wraps.LEAVE_IN)
    return str(caught.value)


@pytest.mark.parametrize("algorithm", [TINY, TINY_Q])
@pytest.mark.parametrize("wrap", [(), (f"{wraps.HERE}:Centered",)])
def test_a_resumed_run_equals_the_one_that_never_stopped(
    algorithm: str, wrap: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = {"resume_exact": True, "wrap": wrap}
    whole = train(algorithm, ENV, {**OPTIONS, **exact}, out=tmp_path, name="whole", hooks=False)
    said = interrupted(tmp_path, algorithm, 97, monkeypatch, **exact)  # step 291, behind the checkpoint of step 240
    advice = "to continue from the last checkpoint, as --resume-exact asks: rlplug resume"
    assert f"stopped by SIGTERM at step 291; {advice}" in said
    part = open_run(tmp_path / "part")
    assert max(int(path.name[-12:]) for path in part.directory.checkpoints_path.glob("step-*")) == 240
    part = resume(part, hooks=False)
    assert_same(final(part), final(whole))
    ends = [[record.data for record in records(run.journal, kinds=("episodes",))] for run in (part, whole)]
    assert ends[0] == ends[1]
    assert read(next(part.directory.checkpoints_path.glob("final-*")))[1]["exact"]


def test_without_it_they_would_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(TINY, ENV, OPTIONS, out=tmp_path, name="whole", hooks=False)
    said = interrupted(tmp_path, TINY, 97, monkeypatch)
    assert "at step 291, checkpoint saved; " in said
    part = resume(tmp_path / "part", hooks=False)
    with pytest.raises(AssertionError):
        assert_same(final(part), final(whole))


def test_environments_whose_state_is_saved_go_on_as_they_are(tmp_path: Path) -> None:
    runs = [
        train(TINY, f"{ENVS}:Chain", {**OPTIONS, "resume_exact": exact}, out=tmp_path, name=f"{exact}", hooks=False)
        for exact in (False, True)
    ]
    assert_same(*map(final, runs))


def test_it_is_refused_where_it_could_do_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--resume-exact makes new environments, which needs --runner sync"):
        train(TINY, ENV, {**OPTIONS, "resume_exact": True, "runner": "async"}, out=tmp_path, hooks=False)

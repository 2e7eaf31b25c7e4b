"""Runs killed before their first checkpoint or after their last one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlplug_core import plugins
from rlplug_core.errors import Interrupted, UsageError
from rlplug_core.loop.events import Progress
from rlplug_core.plugins.hook_specs import hookimpl
from rlplug_core.runs import session
from rlplug_core.runs.api import Run, open_run, resume, train
from rlplug_core.runs.curves import curves
from rlplug_core.runs.journal import Journal, read, tail
from rlplug_core.runs.session import Session
from tests.core.fakes import ENVS, TINY, assert_same
from tests.core.runs.final import final_weights

OPTIONS: dict[str, Any] = {
    "seed": 3, "num_envs": 2, "total_timesteps": 200, "runner": "sync", "eval_episodes": 5, "eval_every": 50,
    "log_every": 20, "checkpoint_every": 40, "final_eval_episodes": 10,
}  # fmt: skip


def train_run(out: Path) -> Run:
    return train(TINY, f"{ENVS}:Chain", OPTIONS, out=out, name="run", hooks=False)


def cut(run: Run, kind: str) -> None:
    """Cut the journal in the last record of a kind, and remove the earlier ones."""
    lines = run.journal.read_text().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    last = len(kinds) - 1 - kinds[::-1].index(kind)
    content = [line for line, line_kind in zip(lines[:last], kinds, strict=False) if line_kind != kind]
    run.journal.write_text("".join(content) + lines[last][:9])


def test_run_killed_before_first_checkpoint_starts_again(tmp_path: Path) -> None:
    run = train_run(tmp_path)
    before = final_weights(run)
    uid = run.config["uid"]
    times = {r.step: r.time for r in read(run.journal, kinds=["metrics"])}
    shutil.rmtree(run.directory.checkpoints_path)
    cut(run, "checkpoint")
    assert run.status == "killed"
    resume(run, hooks=False)
    assert run.status == "finished"
    assert run.config["uid"] == uid
    assert_same(final_weights(run), before)
    assert [record.data["resumed"] for record in read(run.journal, kinds=["start"])] == [False, True]
    # Repeated records keep their time, so that a mirror has them once.
    assert {r.step: r.time for r in read(run.journal, kinds=["metrics"]) if r.step < 200}.items() <= times.items()


def stop_evaluation(*args: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    pytest.fail("the signal did not stop it")


@pytest.mark.parametrize("when", ["before", "during"])
def test_signal_stops_final_evaluation_and_resume_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A signal was ignored there: a script of several runs continued with the next one."""
    (expected,) = read(train_run(tmp_path / "whole").journal, kinds=["final_eval"])

    def watch(progress: Progress) -> None:
        if when == "before" and progress.phase == "final_eval":
            os.kill(os.getpid(), signal.SIGTERM)

    if when == "during":
        monkeypatch.setattr(session, "final_evaluation", stop_evaluation)
    with pytest.raises(Interrupted, match="checkpoint saved; to continue") as raised:
        train(TINY, f"{ENVS}:Chain", OPTIONS, out=tmp_path, name="run", hooks=False, watch=watch)
    monkeypatch.undo()
    run = open_run(tmp_path / "run")
    assert (raised.value.exit_code, run.status) == (143, "interrupted")
    assert not list(read(run.journal, kinds=["final_eval"]))
    resume(run, hooks=False)
    (found,) = read(run.journal, kinds=["final_eval"])
    assert (run.status, found.data) == ("finished", expected.data)


def test_late_signal_stops_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Session.record

    def record_and_signal(self: Session, kind: str, step: int, data: Mapping[str, object]) -> None:
        record(self, kind, step, data)
        if kind == "final_eval":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Session, "record", record_and_signal)
    with pytest.raises(Interrupted, match="stopped by SIGTERM; the run is finished: rlplug show"):
        train_run(tmp_path)
    assert open_run(tmp_path / "run").status == "finished"


def test_journal_filters_kinds_and_new_records(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("start", 0, {"kind": '"kind":"end"'})
    journal.write("metrics", 1, {"loss": float("nan")})  # not JSON, but a run may record it
    assert [record.kind for record in read(path, kinds=["end"])] == []
    assert [record.kind for record in read(path, kinds=["metrics", "start"])] == ["start", "metrics"]
    *_, (_, position) = tail(path, 0)
    assert list(tail(path, position)) == []
    journal.write("end", 2, {"status": "finished"})
    journal.close()
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"seq":4')
    ((record, _),) = tail(path, position)
    assert record.kind == "end"


def test_curves_keep_the_last_value_of_each_step(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for step, loss in ((10, 1.0), (20, 2.0), (30, 3.0)):
        journal.write("metrics", step, {"loss": loss, "flag": True})
    journal.write("evaluation", 30, {"eval/return_mean": 5, "best": True})
    for step, loss in ((20, 4.0), (30, 6.0)):  # resumed from a checkpoint at 10
        journal.write("metrics", step, {"loss": loss})
    journal.close()
    found = curves(tmp_path / "journal.jsonl")
    assert set(found) == {"loss", "eval/return_mean"}
    assert found["loss"].steps.tolist() == [10, 20, 30]
    assert found["loss"].values.tolist() == [1, 4, 6]
    assert list(curves(tmp_path / "journal.jsonl", ["loss", "nothing"])) == ["loss"]


class Calls:
    """Hooks that note their calls; the first call at the end of a run fails."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @hookimpl
    def rlplug_run_start(self) -> None:
        self.names.append("start")

    @hookimpl
    def rlplug_run_end(self, status: str) -> None:
        self.names.append(status)
        if len(self.names) == 2:
            raise OSError("no space")


def test_resume_calls_end_hooks_that_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run killed between its end record and its tables counted as finished and never got them."""
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    calls = Calls()
    run = train(TINY, f"{ENVS}:Chain", OPTIONS, out=tmp_path, name="run", hooks=[calls])
    assert "no space" in capsys.readouterr().err
    before = run.journal.read_bytes()
    resume(run.path, hooks=[calls])
    assert calls.names == ["start", "finished"] * 2
    (run.path / "lock").write_text("123")  # the number of a process that was killed
    resume(run.path, hooks=[calls])
    assert calls.names == ["start", "finished"] * 3
    with pytest.raises(UsageError, match="is finished at step 200"):
        resume(run.path, hooks=[calls])
    assert calls.names == ["start", "finished"] * 3
    assert (run.journal.read_bytes(), run.status) == (before, "finished")

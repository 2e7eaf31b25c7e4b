"""A copied run gets a new MLflow run; a moved run keeps its MLflow run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlplug_cli.mlflow.conclusion import conclude
from rlplug_cli.mlflow.mirror import State
from rlplug_core.runs.journal import Journal
from tests.cli.test_mirror import client, history, journal_points, send_all

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def sent_run(with_store: str, make_run: Callable[..., Any]) -> Path:
    """An interrupted run that was sent to MLflow."""
    run = make_run()
    run.points(20)
    run.end("interrupted")
    send_all(run.path)
    return Path(run.path)


def resume(run: Path, value: float) -> None:
    """Add records of a resumed run with this value."""
    last = json.loads(run.joinpath("journal.jsonl").read_text().splitlines()[-1])["seq"]
    journal = Journal(run / "journal.jsonl", after=last)
    journal.write("start", 20, {"resumed": True})
    journal.write("metrics", 20, {"loss/policy": value})
    journal.write("end", 21, {"status": "finished"})
    journal.close()


def mlflow_run(uri: str, run: Path) -> Any:
    state = State.read(run)
    assert state is not None
    return client(uri).get_run(state.run_id)


@pytest.mark.parametrize("has_state", [True, False])
def test_copy_gets_its_own_mlflow_run_with_one_message(
    with_store: str, sent_run: Path, has_state: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """With and without a copy of the file that names the original's MLflow run."""
    copy = Path(shutil.copytree(sent_run, sent_run.with_name("branch")))
    if not has_state:
        (copy / "mlflow.json").unlink()
    resume(sent_run, 1.0)
    resume(copy, 2.0)
    for run in (copy, sent_run):
        send_all(run)
    message = f"rlplug: {copy} is a copy of {sent_run} and gets its own MLflow run\n"
    assert capsys.readouterr().err == message
    original = mlflow_run(with_store, sent_run)
    new = mlflow_run(with_store, copy)
    assert original.info.run_id != new.info.run_id
    for run, entry in ((sent_run, original), (copy, new)):
        assert history(with_store, entry.info.run_id, "loss/policy") == journal_points(run, "loss/policy")
        assert (entry.info.run_name, entry.data.tags["rlplug.path"]) == (run.name, str(run))
        assert entry.info.status == "FINISHED"
    assert new.data.tags["rlplug.copy_of"] == original.info.run_id
    assert "rlplug.copy_of" not in original.data.tags

    (copy / "mlflow.json").unlink()
    assert send_all(copy).run_id == new.info.run_id
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("has_state", [True, False])
def test_copy_does_not_take_the_run_of_a_moved_copy(with_store: str, sent_run: Path, has_state: bool) -> None:
    first, second = (Path(shutil.copytree(sent_run, sent_run.with_name(name))) for name in ("first", "second"))
    before = send_all(first).run_id
    first = first.rename(sent_run.with_name("first-moved"))  # MLflow does not know it yet
    if not has_state:
        (second / "mlflow.json").unlink()
    assert send_all(second).run_id not in (before, mlflow_run(with_store, sent_run).info.run_id)
    assert mlflow_run(with_store, second).data.tags["rlplug.copy_of"] == mlflow_run(with_store, sent_run).info.run_id
    assert send_all(first).run_id == before


def test_sync_sends_a_copy_without_new_records(with_store: str, sent_run: Path, rlplug: Callable[..., Any]) -> None:
    copy = Path(shutil.copytree(sent_run, sent_run.with_name("branch")))
    result = rlplug("sync", "branch")
    assert "branch is a copy of" in result.err
    assert result.out.startswith("sent 22 records; ")
    assert mlflow_run(with_store, copy).data.tags["rlplug.path"] == str(copy)
    again = rlplug("sync", "branch")
    assert (again.err, again.out.partition(";")[0]) == ("", "sent 0 records")


@pytest.mark.parametrize("has_state", [True, False])
def test_moved_run_keeps_its_mlflow_run(
    with_store: str, sent_run: Path, has_state: bool, rlplug: Callable[..., Any], make_run: Callable[..., Any]
) -> None:
    before = mlflow_run(with_store, sent_run)
    moved = sent_run.rename(sent_run.with_name("moved"))
    make_run("one").end()  # another run at the old path
    config = json.loads((sent_run / "config.json").read_text())
    (sent_run / "config.json").write_text(json.dumps({**config, "uid": "another"}))
    if not has_state:
        (moved / "mlflow.json").unlink()
    result = rlplug("sync", "moved")
    assert (result.code, result.err) == (0, "")
    after = mlflow_run(with_store, moved)
    assert after.info.run_id == before.info.run_id
    assert (after.info.run_name, after.data.tags["rlplug.path"]) == ("moved", str(moved))
    assert "rlplug.copy_of" not in after.data.tags


def test_name_given_in_mlflow_stays(with_store: str, sent_run: Path) -> None:
    client(with_store).update_run(mlflow_run(with_store, sent_run).info.run_id, name="the good one")
    moved = sent_run.rename(sent_run.with_name("moved"))
    send_all(moved)
    entry = mlflow_run(with_store, moved)
    assert (entry.info.run_name, entry.data.tags["rlplug.path"]) == ("the good one", str(moved))


def test_link_to_the_run_is_the_same_run(with_store: str, sent_run: Path) -> None:
    link = sent_run.with_name("link")
    link.symlink_to(sent_run)
    before = mlflow_run(with_store, sent_run)
    resume(sent_run, 1.0)
    assert send_all(link).run_id == before.info.run_id
    after = mlflow_run(with_store, sent_run)
    assert (after.info.run_name, after.data.tags["rlplug.path"]) == ("one", str(sent_run))


@pytest.fixture
def sent_sweep(with_store: str, make_run: Callable[..., Any]) -> Path:
    """A sweep of one run, sent to MLflow with its parent."""
    run = make_run("sw/s1")
    directory = Path(run.path).parent
    (directory / "sweep.json").write_text(json.dumps({"kind": "seeds", "uid": "uid-sw", "created": 1.0, "tasks": []}))
    run.points(3)
    run.end()
    send_all(run.path)
    return directory


def parent(uri: str, directory: Path) -> Any:
    (parent_id,) = json.loads((directory / "mlflow.json").read_text())["parents"].values()
    return client(uri).get_run(parent_id)


def test_copied_sweep_gets_its_own_parent(with_store: str, sent_sweep: Path) -> None:
    copy = Path(shutil.copytree(sent_sweep, sent_sweep.with_name("sw2")))
    conclude(copy, [copy / "sweep.json"], "FINISHED")
    original, new = parent(with_store, sent_sweep), parent(with_store, copy)
    assert (original.info.run_name, original.info.status) == ("sw", "RUNNING")
    assert (new.info.run_name, new.info.status) == ("sw2", "FINISHED")
    assert new.data.tags["rlplug.path"] == str(copy)
    assert new.data.tags["rlplug.copy_of"] == original.info.run_id
    assert mlflow_run(with_store, copy / "s1").data.tags["mlflow.parentRunId"] == new.info.run_id
    assert mlflow_run(with_store, sent_sweep / "s1").data.tags["mlflow.parentRunId"] == original.info.run_id


def test_moved_sweep_keeps_its_parent(with_store: str, sent_sweep: Path) -> None:
    before = parent(with_store, sent_sweep)
    moved = sent_sweep.rename(sent_sweep.with_name("sw2"))
    conclude(moved, [], "FINISHED")
    after = parent(with_store, moved)
    assert after.info.run_id == before.info.run_id
    assert (after.info.run_name, after.data.tags["rlplug.path"]) == ("sw2", str(moved))
    assert mlflow_run(with_store, moved / "s1").data.tags["rlplug.path"] == str(moved / "s1")

"""A copy of a run has an MLflow run of its own; one that was moved takes its MLflow run along."""

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
from tests.cli.test_mirror import client, history, send_all, written_points

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def sent(with_store: str, written: Callable[..., Any]) -> Path:
    """A run that was interrupted and sent."""
    run = written()
    run.points(20)
    run.end("interrupted")
    send_all(run.path)
    return Path(run.path)


def go_on(run: Path, value: float) -> None:
    """More of a run, as a resume records it; `value` tells one from the other."""
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


@pytest.mark.parametrize("noted", [True, False])
def test_a_copy_gets_a_run_of_its_own_and_says_so_once(
    with_store: str, sent: Path, noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the file that says where the original is in MLflow was copied with it or not."""
    copy = Path(shutil.copytree(sent, sent.with_name("branch")))
    if not noted:
        (copy / "mlflow.json").unlink()
    go_on(sent, 1.0)
    go_on(copy, 2.0)
    for run in (copy, sent):
        send_all(run)
    said = f"rlplug: {copy} is a copy of {sent} and gets its own MLflow run\n"
    assert capsys.readouterr().err == said
    one, other = mlflow_run(with_store, sent), mlflow_run(with_store, copy)
    assert one.info.run_id != other.info.run_id
    for run, found in ((sent, one), (copy, other)):
        assert history(with_store, found.info.run_id, "loss/policy") == written_points(run, "loss/policy")
        assert (found.info.run_name, found.data.tags["rlplug.path"]) == (run.name, str(run))
        assert found.info.status == "FINISHED"
    assert other.data.tags["rlplug.copy_of"] == one.info.run_id
    assert "rlplug.copy_of" not in one.data.tags

    (copy / "mlflow.json").unlink()
    assert send_all(copy).run_id == other.info.run_id
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("noted", [True, False])
def test_a_copy_takes_no_run_of_another_copy_that_was_moved_away(with_store: str, sent: Path, noted: bool) -> None:
    first, second = (Path(shutil.copytree(sent, sent.with_name(name))) for name in ("first", "second"))
    before = send_all(first).run_id
    first = first.rename(sent.with_name("first-moved"))  # which MLflow is not told yet
    if not noted:
        (second / "mlflow.json").unlink()
    assert send_all(second).run_id not in (before, mlflow_run(with_store, sent).info.run_id)
    assert mlflow_run(with_store, second).data.tags["rlplug.copy_of"] == mlflow_run(with_store, sent).info.run_id
    assert send_all(first).run_id == before


def test_sync_sends_a_copy_that_has_nothing_new(with_store: str, sent: Path, rlplug: Callable[..., Any]) -> None:
    copy = Path(shutil.copytree(sent, sent.with_name("branch")))
    done = rlplug("sync", "branch")
    assert "branch is a copy of" in done.err
    assert done.out.startswith("sent 22 records; ")
    assert mlflow_run(with_store, copy).data.tags["rlplug.path"] == str(copy)
    again = rlplug("sync", "branch")
    assert (again.err, again.out.partition(";")[0]) == ("", "sent 0 records")


@pytest.mark.parametrize("noted", [True, False])
def test_a_moved_run_takes_its_mlflow_run_along(
    with_store: str, sent: Path, noted: bool, rlplug: Callable[..., Any], written: Callable[..., Any]
) -> None:
    before = mlflow_run(with_store, sent)
    moved = sent.rename(sent.with_name("moved"))
    written("one").end()  # another run at the old place
    config = json.loads((sent / "config.json").read_text())
    (sent / "config.json").write_text(json.dumps({**config, "uid": "another"}))
    if not noted:
        (moved / "mlflow.json").unlink()
    done = rlplug("sync", "moved")
    assert (done.code, done.err) == (0, "")
    after = mlflow_run(with_store, moved)
    assert after.info.run_id == before.info.run_id
    assert (after.info.run_name, after.data.tags["rlplug.path"]) == ("moved", str(moved))
    assert "rlplug.copy_of" not in after.data.tags


def test_a_name_that_someone_gave_in_mlflow_stays(with_store: str, sent: Path) -> None:
    client(with_store).update_run(mlflow_run(with_store, sent).info.run_id, name="the good one")
    moved = sent.rename(sent.with_name("moved"))
    send_all(moved)
    found = mlflow_run(with_store, moved)
    assert (found.info.run_name, found.data.tags["rlplug.path"]) == ("the good one", str(moved))


def test_another_way_to_the_same_directory_is_neither(with_store: str, sent: Path) -> None:
    link = sent.with_name("link")
    link.symlink_to(sent)
    before = mlflow_run(with_store, sent)
    go_on(sent, 1.0)
    assert send_all(link).run_id == before.info.run_id
    after = mlflow_run(with_store, sent)
    assert (after.info.run_name, after.data.tags["rlplug.path"]) == ("one", str(sent))


@pytest.fixture
def swept(with_store: str, written: Callable[..., Any]) -> Path:
    """A sweep of one run, sent with its parent."""
    run = written("sw/s1")
    directory = Path(run.path).parent
    (directory / "sweep.json").write_text(json.dumps({"kind": "seeds", "uid": "uid-sw", "created": 1.0, "tasks": []}))
    run.points(3)
    run.end()
    send_all(run.path)
    return directory


def parent(uri: str, directory: Path) -> Any:
    (found,) = json.loads((directory / "mlflow.json").read_text())["parents"].values()
    return client(uri).get_run(found)


def test_a_copy_of_a_sweep_has_a_parent_of_its_own(with_store: str, swept: Path) -> None:
    copy = Path(shutil.copytree(swept, swept.with_name("sw2")))
    conclude(copy, [copy / "sweep.json"], "FINISHED")
    one, other = parent(with_store, swept), parent(with_store, copy)
    assert (one.info.run_name, one.info.status) == ("sw", "RUNNING")
    assert (other.info.run_name, other.info.status) == ("sw2", "FINISHED")
    assert other.data.tags["rlplug.path"] == str(copy)
    assert other.data.tags["rlplug.copy_of"] == one.info.run_id
    assert mlflow_run(with_store, copy / "s1").data.tags["mlflow.parentRunId"] == other.info.run_id
    assert mlflow_run(with_store, swept / "s1").data.tags["mlflow.parentRunId"] == one.info.run_id


def test_a_moved_sweep_takes_its_parent_along(with_store: str, swept: Path) -> None:
    before = parent(with_store, swept)
    moved = swept.rename(swept.with_name("sw2"))
    conclude(moved, [], "FINISHED")
    after = parent(with_store, moved)
    assert after.info.run_id == before.info.run_id
    assert (after.info.run_name, after.data.tags["rlplug.path"]) == ("sw2", str(moved))
    assert mlflow_run(with_store, moved / "s1").data.tags["rlplug.path"] == str(moved / "s1")

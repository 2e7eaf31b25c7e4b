"""The copy of a run in MLflow is complete and has no duplicates, and sending continues after a stop."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from rlplug_cli.mlflow.batch import Batch
from rlplug_cli.mlflow.mirror import Mirror, State
from rlplug_cli.mlflow.store import Damaged, prepare
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.runs.journal import Journal, Record

# MLflow's own imports warn.
pytestmark = pytest.mark.filterwarnings("ignore")


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(uri)


def send_all(path: Path) -> State:
    mirror = Mirror(path)
    try:
        while mirror.send():
            pass
    finally:
        mirror.close()
    return mirror.state


def history(uri: str, run: str, key: str) -> list[tuple[int, float, int]]:
    return sorted((point.step, point.value, point.timestamp) for point in client(uri).get_metric_history(run, key))


def journal_points(path: Path, key: str) -> list[tuple[int, float, int]]:
    lines = (json.loads(line) for line in (path / "journal.jsonl").read_text().splitlines())
    return sorted((line["step"], line["data"][key], line["time"]) for line in lines if key in line["data"])


def test_run_is_in_mlflow_with_complete_curves(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.points(2500)
    run.journal.write("evaluation", 2500, {"eval/return_mean": 9.5, "best": True})
    run.journal.write("tag", 2500, {"rlplug.hook_failed": "x"})
    run.journal.write("episodes", 2500, {"steps": [1, 2], "returns": [3.0, 4.0], "lengths": [5, 6], "workers": [0, 1]})
    final_eval = {"checkpoint": "best-1", "episodes": 100, "return_mean": 500.0, "return_std": 1.0}
    run.journal.write("final_eval", 2500, {**final_eval, "return_min": 499.0, "return_max": 501.0})
    best = run.path / "checkpoints" / "best-000000002500"
    best.mkdir(parents=True)
    (best / "learner.safetensors").write_bytes(b"weights")
    (run.path / "sources").mkdir()
    (run.path / "sources" / "mine-5ec1.py").write_text("MINE")
    run.end()
    state = send_all(run.path)

    mlflow = client(with_store)
    experiment = mlflow.get_experiment_by_name("CartPole-v1")
    (mlflow_run,) = mlflow.search_runs([experiment.experiment_id])
    assert mlflow_run.info.run_id == state.run_id
    assert (mlflow_run.info.status, mlflow_run.info.run_name) == ("FINISHED", "one")
    assert history(with_store, state.run_id, "loss/policy") == journal_points(run.path, "loss/policy")
    assert len(journal_points(run.path, "loss/policy")) == 2500
    assert mlflow_run.data.metrics["eval/return_mean"] == 9.5
    assert mlflow_run.data.metrics["final_eval/return_mean"] == 500.0
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    params = {"algorithm": "a2c", "env": "CartPole-v1", "seed": "1", "learning_rate": "0.1", "net.hidden": "[64, 64]"}
    assert mlflow_run.data.params == {**params, "total_timesteps": "10000"}
    tags = mlflow_run.data.tags
    assert (tags["rlplug.uid"], tags["rlplug.group"], tags["rlplug.hook_failed"]) == ("uid-one", "group", "x")
    assert tags["rlplug.final_eval"] == "500 ± 1 over 100 episodes"
    assert tags["rlplug.best"] == "9.5 at step 2500"
    assert "best" not in mlflow_run.data.metrics
    names = {file.path for file in mlflow.list_artifacts(state.run_id)}
    assert names == {"config.json", "episodes.parquet", "checkpoints", "sources"}
    assert [file.path for file in mlflow.list_artifacts(state.run_id, "sources")] == ["sources/mine-5ec1.py"]
    assert tags["rlplug.source.algorithm"] == "5ec1"
    (weights,) = mlflow.list_artifacts(state.run_id, f"checkpoints/{best.name}")
    assert weights.path.endswith("learner.safetensors")
    assert mlflow.get_run(state.run_id).info.artifact_uri.startswith("file:///")


def test_records_sent_twice_are_stored_once(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.points(1200)
    run.end()
    state = send_all(run.path)
    state.cursor = 0
    state.write(run.path)
    assert send_all(run.path).cursor == 1202
    assert history(with_store, state.run_id, "loss/policy") == journal_points(run.path, "loss/policy")


def test_lost_state_file_finds_the_same_mlflow_run(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.points(3)
    run.end()
    first = send_all(run.path)
    (run.path / "mlflow.json").unlink()
    assert send_all(run.path).run_id == first.run_id
    assert len(client(with_store).search_runs([first.experiment_id])) == 1


def test_resumed_run_continues_the_same_mlflow_run(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.points(50)
    run.end("interrupted")
    state = send_all(run.path)
    assert client(with_store).get_run(state.run_id).info.status == "KILLED"

    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(
        json.dumps({**config, "options": {**config["options"], "total_timesteps": 99}})
    )
    run.journal = Journal(run.path / "journal.jsonl", after=42)
    run.journal.write("start", 40, {"resumed": True, "limit": 5000, "rescale": False})
    run.points(59, start=41)
    mirror = Mirror(run.path)
    mirror.send()
    assert client(with_store).get_run(state.run_id).info.status == "RUNNING"
    mirror.close()
    run.end()
    assert send_all(run.path).run_id == state.run_id
    points = history(with_store, state.run_id, "loss/policy")
    assert [point[0] for point in points] == list(range(100))
    mlflow_run = client(with_store).get_run(state.run_id)
    assert mlflow_run.info.status == "FINISHED"
    tags = mlflow_run.data.tags
    assert (tags["rlplug.total_timesteps"], tags["rlplug.rescaled"]) == ("5000", "false")


@pytest.mark.parametrize(("status", "mlflow_status"), [("failed", "FAILED"), ("interrupted", "KILLED")])
def test_status_and_error_of_a_run(
    with_store: str, make_run: Callable[..., Any], status: str, mlflow_status: str
) -> None:
    run = make_run()
    run.journal.write("error", 5, {"type": "ValueError", "message": "no"})
    (run.path / "error.txt").write_text("traceback")
    run.end(status)
    state = send_all(run.path)
    mlflow_run = client(with_store).get_run(state.run_id)
    assert mlflow_run.info.status == mlflow_status
    assert mlflow_run.data.tags["rlplug.error"] == "ValueError: no"
    assert "error.txt" in {file.path for file in client(with_store).list_artifacts(state.run_id)}
    run.journal = Journal(run.path / "journal.jsonl", after=6)
    run.journal.write("start", 6, {"resumed": True, "limit": 0, "rescale": False})
    run.end()
    send_all(run.path)
    resumed = client(with_store).get_run(state.run_id)
    assert resumed.info.status == "FINISHED"
    assert "rlplug.error" not in resumed.data.tags


def test_infinities_are_dropped_and_names_are_escaped(with_store: str, make_run: Callable[..., Any]) -> None:
    run = make_run()
    run.journal.write("metrics", 1, {"a[0]\n": 1.0, "b": math.inf, "c": -math.inf, "d": math.nan})
    run.end()
    metrics = client(with_store).get_run(send_all(run.path).run_id).data.metrics
    assert set(metrics) == {"a_0__", "d"}


def test_batch_size_is_within_the_limit_of_mlflow(make_run: Callable[..., Any]) -> None:
    run = make_run()
    for step in range(300):
        run.journal.write("metrics", step, {f"key{number}": 1.0 for number in range(7)})
    run.end()
    mirror = Mirror(run.path)
    sizes = []
    position = 0
    ends = 0
    while True:
        batch, position = mirror._next_records(position)
        if not batch.cursor:
            break
        mirror.state.cursor = batch.cursor
        sizes.append(len(batch.metrics))
        ends += batch.end is not None
    mirror.close()
    assert sum(sizes) == 2100
    assert max(sizes) <= 1000
    assert (len(sizes), ends) == (3, 1)


def test_incomplete_last_line_is_sent_later(make_run: Callable[..., Any]) -> None:
    run = make_run()
    with open(run.path / "journal.jsonl", "a") as file:
        file.write('{"seq": 2, "time": 1, "kind": "metr')
    mirror = Mirror(run.path)
    batch, position = mirror._next_records(0)
    assert batch.cursor == 1
    mirror.state.cursor = 1
    assert mirror._next_records(position) == (Batch(), position)
    with open(run.path / "journal.jsonl", "a") as file:
        file.write('ics", "step": 3, "data": {"x": 1.0}}\n')
    assert mirror._next_records(position)[0].metrics == [("x", 1.0, 3, 1)]
    mirror.close()


def test_only_one_process_sends_a_run(make_run: Callable[..., Any]) -> None:
    run = make_run()
    first = Mirror(run.path)
    with pytest.raises(UsageError, match="another process is sending run"):
        Mirror(run.path)
    first.close()
    Mirror(run.path).close()


def test_episodes_are_written_as_a_table(make_run: Callable[..., Any]) -> None:
    import pyarrow.parquet

    from rlplug_cli.mlflow import episodes

    run = make_run()
    assert episodes.write(run.path) is None
    run.journal.write("episodes", 9, {"steps": [1, 2], "returns": [3.0, 4.0], "lengths": [5, 6], "workers": [0, 1]})
    record: Record = run.journal.write(
        "episodes", 12, {"steps": [12], "returns": [7.0], "lengths": [8], "workers": [1]}
    )
    path = episodes.write(run.path)
    assert path == run.path / "episodes.parquet"
    table = pyarrow.parquet.read_table(path).to_pydict()
    time = table.pop("time")
    assert table == {"step": [1, 2, 12], "return": [3.0, 4.0, 7.0], "length": [5, 6, 8], "worker": [0, 1, 1]}
    assert time[2].replace(tzinfo=UTC).timestamp() == record.time / 1000


DAMAGED = [
    '{"seq":500,"time":1,"kind":"metrics","step":0,"data":{"loss/policy":-1.0}}',
    "{]",
    "\0" * 200,
    '{"seq":6,"time":1,"kind":"end","step":0,"data":{"status":"no such"}}',
    '{"seq":6,"time":1,"kind":"final_eval","step":0,"data":{"return_mean":1.0,"checkpoint":3}}',
    '{"seq":6,"time":1,"kind":"error","step":0,"data":{}}',
    f'{{"seq":6,"time":1,"kind":"metrics","step":{2**70},"data":{{}}}}',
    f'{{"seq":6,"time":1,"kind":"metrics","step":1,"data":{{"a":{10**400}}}}}',
    '{"seq":6,"time":1,"kind":"metrics","step":1,"data":{"":1.0,"../a":1.0,"/b":1.0,"c//d":1.0,".":1.0}}',
    '{"seq":6,"time":1,"kind":"episodes","step":1,"data":{"steps":[1],"workers":["x"],"returns":[],"lengths":[]}}',
]


@pytest.mark.parametrize("line", DAMAGED)
def test_damaged_line_does_not_block_the_others(with_store: str, make_run: Callable[..., Any], line: str) -> None:
    run = make_run()
    run.points(10)
    run.end()
    path = run.path / "journal.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], line, *lines[6:]]) + "\n")  # the damage removes one point
    state = send_all(run.path)
    points = [step for step, *_ in history(with_store, state.run_id, "loss/policy")]
    assert points == [step for step in range(10) if step != 4]
    assert state.cursor == 12
    assert client(with_store).get_run(state.run_id).info.status == "FINISHED"


@pytest.mark.parametrize("caught_up", [False, True])
def test_shortened_journal_leads_to_no_duplicates_or_gaps(
    with_store: str, make_run: Callable[..., Any], caught_up: bool
) -> None:
    """A power failure can lose lines that were sent. `caught_up`: the run has recorded more lines than it lost."""
    run = make_run()
    run.points(30)
    run.journal.close()
    first = send_all(run.path)
    path = run.path / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:15]))
    run.journal = Journal(path, after=11)
    run.journal.write("start", 10, {"resumed": True, "after": 11})
    run.points(40 if caught_up else 3, start=10)
    if not caught_up:
        assert send_all(run.path).ahead
        run.points(37, start=13)
    run.end()
    state = send_all(run.path)
    assert state.run_id == first.run_id
    points = history(with_store, state.run_id, "loss/policy")
    assert [(step, value) for step, value, _ in points] == [(step, float(step)) for step in range(50)]


@pytest.fixture
def moved_run(
    with_store: str,
    make_run: Callable[..., Any],
    place: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A run with unsent records, in a project that was moved with its store."""
    with sqlite3.connect("mlflow.db") as connection:  # the place before the move
        connection.execute("update experiments set artifact_location = ?", (f"{(place / 'mlartifacts').as_uri()}/0",))
    connection.close()
    run = make_run()
    run.points(10)
    run.journal.write("end", 10_000, {"status": "interrupted"})
    send_all(run.path)
    run.points(10, 10)
    run.end()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    return place.rename(Path("new").absolute()) / "runs" / "one"


def test_store_that_moved_with_the_run_is_found(moved_run: Path, place: Path, process: Callable[..., Any]) -> None:
    before = State.read(moved_run)
    project = moved_run.parents[1]
    result = process("sync", str(moved_run))
    assert result.out == f"sent 11 records; all of this run is in MLflow at sqlite:///{project}/mlflow.db\n"
    assert not place.exists()
    after = State.read(moved_run)
    assert before is not None
    assert after is not None
    assert after.run_id == before.run_id
    assert history(after.tracking_uri, after.run_id, "loss/policy") == journal_points(moved_run, "loss/policy")
    artifact_uri = client(after.tracking_uri).get_run(after.run_id).info.artifact_uri
    assert artifact_uri.startswith((project / "mlartifacts").as_uri())
    assert Path(artifact_uri.removeprefix("file://"), "config.json").is_file()


def test_missing_store_is_not_created_again(moved_run: Path, place: Path) -> None:
    (moved_run.parents[1] / "mlflow.db").unlink()
    with pytest.raises(UsageError, match=r"the store sqlite:.*mlflow.db of .* is gone; if it was moved, set"):
        Mirror(moved_run)
    assert not place.exists()


def test_deleted_experiment_names_the_restore_command(with_store: str, make_run: Callable[..., Any]) -> None:
    first = make_run()
    first.points(10)
    experiment = send_all(first.path).experiment_id
    client(with_store).delete_experiment(experiment)
    second = make_run("second")
    second.points(10)
    message = (
        f"its experiment 'CartPole-v1' was deleted; restore it: mlflow experiments restore --experiment-id {experiment}"
    )
    with pytest.raises(Damaged, match=message):
        send_all(second.path)
    client(with_store).restore_experiment(experiment)
    assert send_all(second.path).experiment_id == experiment


def test_store_that_moved_while_sending_is_reported(
    with_store: str, make_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the past, the last message said that all of the run is in MLflow, and sync sent nothing to the new store."""
    run = make_run()
    run.points(30)
    run.end()
    send_all(run.path)
    store = Path(with_store.removeprefix("sqlite:///"))
    mirror = Mirror(run.path)
    while mirror.send():
        pass
    mirror.check_store()
    store.rename(store.with_name("moved.db"))
    with pytest.raises(RlplugError, match=r"does not have this run: the store was moved .* sends all of it"):
        mirror.check_store()
    mirror.close()
    prepare(with_store)
    state = send_all(run.path)
    assert history(with_store, state.run_id, "loss/policy") == journal_points(run.path, "loss/policy")


def test_store_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mlflow.db")
    with pytest.raises(Damaged, match=r"mlflow.db is not a file; move it away"):
        prepare(f"sqlite:///{tmp_path / 'mlflow.db'}")

"""The local MLflow store: several processes may create it at the same time, and may be killed while they do."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rlplug_cli.mlflow import store
from rlplug_core.errors import RlplugError
from tests.waiting import PATIENCE, until

PREPARE = "import sys; from rlplug_cli.mlflow import store; store.prepare(sys.argv[1])"


def start_prepare(uri: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PREPARE, uri])


def is_usable(path: Path) -> bool:
    with sqlite3.connect(path) as connection:
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        mode = connection.execute("pragma journal_mode").fetchone()[0]
        versions = list(connection.execute("select version_num from alembic_version"))
    connection.close()
    return {"runs", "metrics", "params", "experiments"} <= tables and mode == "wal" and len(versions) == 1


def test_processes_can_create_the_store_at_the_same_time(place: Path) -> None:
    started = [start_prepare(store.tracking_uri()) for _ in range(4)]
    assert [process.wait(PATIENCE) for process in started] == [0, 0, 0, 0]
    assert is_usable(place / "mlflow.db")
    assert sorted(path.name for path in place.iterdir()) == ["mlflow.db", "mlflow.db.lock"]


def test_store_can_be_created_after_a_killed_creation(place: Path) -> None:
    process = start_prepare(store.tracking_uri())
    until(lambda: bool(list(place.glob("mlflow.db.creating-*"))), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(place.glob("mlflow.db.creating-*"))
    assert not (place / "mlflow.db").exists()
    assert start_prepare(store.tracking_uri()).wait(PATIENCE) == 0
    assert is_usable(place / "mlflow.db")
    assert not list(place.glob("mlflow.db.creating-*"))


def test_existing_store_is_unchanged(place: Path) -> None:
    sqlite3.connect(place / "mlflow.db").execute("create table mine (x)").connection.close()
    before = (place / "mlflow.db").read_bytes()
    store.prepare(store.tracking_uri())
    assert (place / "mlflow.db").read_bytes() == before


def test_damaged_store_is_refused(place: Path) -> None:
    (place / "mlflow.db").write_text("not a database" * 100)
    with pytest.raises(RlplugError, match=r"mlflow.db cannot be read: .*; move it away"):
        store.prepare(store.tracking_uri())


@pytest.mark.parametrize("name", ["what?", "a%20b"])
def test_path_that_a_url_cannot_contain_is_refused(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / name).mkdir()
    monkeypatch.chdir(place / name)
    with pytest.raises(RlplugError, match=r"can be at .*; rename the directory, or set MLFLOW_TRACKING_URI="):
        store.prepare(store.tracking_uri())
    assert list(place.rglob("*")) == [place / name]


@pytest.mark.parametrize(
    ("variable", "uri"),
    [
        (None, "sqlite:///{place}/mlflow.db"),
        ("sqlite:///other.db", "sqlite:///{place}/other.db"),
        ("sqlite:////abs/other.db", "sqlite:////abs/other.db"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
    ],
)
def test_uri_is_absolute_and_may_be_set_by_the_user(place: Path, variable: str | None, uri: str) -> None:
    assert store.tracking_uri({} if variable is None else {store.URI: variable}) == uri.format(place=place)


@pytest.mark.parametrize(
    ("artifacts", "inside"),
    [
        ("{place}/mlartifacts/1/artifacts", True),
        ("file://{place}/mlruns/1", True),
        ("file://{place}/mlartifacts/../../victim", False),
        ("file://{place}/planted/1", False),
        ("file://host{place}/mlartifacts/1", False),
        ("/etc", False),
        ("s3://bucket{place}/1", False),
        ("ftp://host/1", False),
    ],
)
def test_store_in_the_directory_keeps_files_inside(
    place: Path, monkeypatch: pytest.MonkeyPatch, artifacts: str, inside: bool
) -> None:
    """`mlflow.db` names the place for the files of its runs, and another account may have written it."""
    monkeypatch.delenv(store.URI, raising=False)
    (place / "planted").symlink_to("/tmp")
    uri = store.sqlite_uri(place / "mlflow.db")
    assert store.has_own_artifacts(uri, artifacts.format(place=place)) == inside
    assert store.has_own_artifacts("http://server", artifacts)
    monkeypatch.setenv(store.URI, uri)  # the user named it
    assert store.has_own_artifacts(uri, artifacts.format(place=place))


def test_artifacts_of_a_local_store_are_next_to_it() -> None:
    assert store.artifact_root("sqlite:////a/b.db") == "file:///a/mlartifacts"
    assert store.artifact_root("http://127.0.0.1:5000") is None

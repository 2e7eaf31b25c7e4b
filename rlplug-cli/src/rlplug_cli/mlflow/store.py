"""The MLflow store of runs: the tracking URI, and the safe creation of a local SQLite store.

A plain first start of MLflow on a fresh SQLite file is not safe to kill (half of the kills left it unusable) or to race
(three of four processes died), so the store is built under a temporary name, under a file lock, and renamed into place.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlplug_core.config import acquire_lock, sync_directory, sync_file
from rlplug_core.errors import RlplugError

URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
#: Parts of a path that SQLAlchemy reads differently in a URL; its versions differ in quoting.
_NO_PATH = re.compile(r"\?|%[0-9A-Fa-f]{2}")
#: The directory of artifacts next to a SQLite file.
ARTIFACTS = "mlartifacts"
#: Environment variables to set before mlflow is imported, unless they are set already.
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the sender retries itself; the default blocks for minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",  # it loses its queue when the process is killed
    "GIT_PYTHON_REFRESH": "quiet",
}


class Damaged(RlplugError):
    """The store cannot be used until its owner repairs it: not a SQLite database, or the experiment was deleted."""


def apply_settings() -> None:
    """Apply `SETTINGS`."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def tracking_uri(
    environ: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> str:
    """Return `MLFLOW_TRACKING_URI`, or `mlflow.db` in the working directory; a SQLite file by its absolute path."""
    uri = environ.get(URI) or sqlite_uri(Path("mlflow.db"))
    path = sqlite_path(uri)
    return uri if path is None else sqlite_uri((directory or Path.cwd()) / path)


def sqlite_uri(path: Path) -> str:
    """Return the URI of the store in a SQLite file."""
    return f"{_SQLITE}{path}"


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite store; None for any other store."""
    name = uri.removeprefix(_SQLITE) if uri.startswith(_SQLITE) else ""
    return Path(name) if name and name != ":memory:" else None


def check_path(path: Path, remedy: str) -> None:
    """Refuse a path of a SQLite file that a URL cannot express; `remedy` names another way than renaming.

    Raises:
        RlplugError: it is such a path.
    """
    if match := _NO_PATH.search(str(path)):
        raise RlplugError(
            f"no SQLite store can be at {path}: '{match[0]}' means something else in its URL; rename the directory, "
            f"or {remedy}"
        )


def artifact_root(uri: str) -> str | None:
    """Return the absolute URI of a local store's artifacts; None if a server decides."""
    path = sqlite_path(uri)
    return None if path is None else (path.parent / ARTIFACTS).as_uri()


def has_own_artifacts(uri: str, place: str) -> bool:
    """Return whether files sent to `place` stay in the directory of the default store.

    `mlflow.db` in the working directory may come from another account, and it says where the files of its runs go. A
    store that `MLFLOW_TRACKING_URI` names is the user's choice.
    """
    path = sqlite_path(uri)
    if path is None or os.environ.get(URI):
        return True
    url = urlsplit(place)
    inside = Path(unquote(url.path)).resolve().is_relative_to(path.parent.resolve())
    return inside and url.scheme in ("", "file") and not url.netloc


def prepare(uri: str) -> None:
    """Create a local store that does not exist yet; many processes may call this at once, and may be killed in it.

    Raises:
        Damaged: the file is not a SQLite database. RlplugError: the path cannot be used. OSError: it cannot be
            written.
    """
    path = sqlite_path(uri)
    if path is None:
        return
    check_path(path, f"set {URI}='sqlite:///PATH' with another path")
    if path.exists():
        _check_file(path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _lock(path.with_name(f"{path.name}.lock")):
        if path.exists():
            return
        # The lock is held, so these are from dead processes.
        for stale in path.parent.glob(f"{path.name}.creating-*"):
            stale.unlink(missing_ok=True)
        temporary = path.with_name(f"{path.name}.creating-{os.getpid()}")
        _create(temporary, str(artifact_root(uri)))
        os.rename(temporary, path)
        sync_directory(path.parent)


def read_only_connection(path: Path) -> sqlite3.Connection:
    """Return a connection to a local store that only reads."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def holds_run(path: Path, run_id: str) -> bool:
    """Return whether a local store has a run."""
    with closing(read_only_connection(path)) as connection:
        row = connection.execute("select 1 from runs where run_uuid = ?", (run_id,)).fetchone()
    return row is not None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with open(path, "a", encoding="utf-8") as file:
        acquire_lock(file.fileno(), wait=True)
        yield


def _check_file(path: Path) -> None:
    """Fail at once with `Damaged` on a damaged file or a pipe: MLflow would try again for minutes, or wait."""
    if not path.is_file():
        raise Damaged(f"the store {path} is not a file; move it away and a new one is made")
    try:
        with closing(read_only_connection(path)) as connection:
            connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.OperationalError:
        return  # locked for a while by another process: MLflow waits for that
    except sqlite3.DatabaseError as error:
        raise Damaged(
            f"the store {path} cannot be read: {error}; move it away and a new one is made"
        ) from error


def _create(path: Path, artifacts: str) -> None:
    """Run all migrations of the schema, and switch to write-ahead logging, which stays with the file."""
    apply_settings()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import Engine, event

    # A store that is not complete is thrown away, so its migrations need not be synced one by one; that takes seconds.
    event.listen(Engine, "connect", _do_not_sync)
    try:
        store = SqlAlchemyStore(sqlite_uri(path), artifacts)
    finally:
        event.remove(Engine, "connect", _do_not_sync)
    store.engine.dispose()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    sync_file(path)


def _do_not_sync(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")

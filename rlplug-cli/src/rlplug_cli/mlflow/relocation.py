"""Find the local store of runs again that was moved with them, and let it find its artifacts."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlplug_cli.mlflow.store import ARTIFACTS, artifact_root, reading, sqlite_path, sqlite_uri

#: Where a store keeps places of artifacts, by table and column.
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def found(uri: str, run: Path, run_id: str, wanted: str) -> str | None:
    """The URI of the store that a run is in: `uri`, or if that is a SQLite file which is gone, where it is now.

    Looks at `wanted` and for a file of its name in each folder above the run; None where none of them has the run.
    """
    path = sqlite_path(uri)
    if path is None or path.exists():
        return uri
    above = (sqlite_uri(folder / path.name) for folder in run.absolute().parents)
    return next((one for one in (wanted, *above) if _holds(one, run_id)), None)


def settle_artifacts(uri: str) -> None:
    """Let a local store that was moved with its artifacts find them: MLflow notes absolute places alone."""
    path = sqlite_path(uri)
    new = artifact_root(uri)
    old = _noted(uri)
    if (
        path is None
        or not old.endswith(f"/{ARTIFACTS}")
        or Path(unquote(urlsplit(old).path)).parent.exists()
    ):
        return
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, column in _PLACES:
            connection.execute(
                f"update {table} set {column} = ? || substr({column}, ?) where substr({column}, 1, ?) = ?",
                (new, len(old) + 1, len(old) + 1, f"{old}/"),
            )


def _holds(uri: str, run_id: str) -> bool:
    """Return whether a local store has an MLflow run of this id; False for a server, which is not asked."""
    return bool(_first(uri, "select 1 from runs where run_uuid = ?", run_id))


def _noted(uri: str) -> str:
    """The folder of all artifacts as a local store notes it, by that of MLflow's own experiment; else empty."""
    return _first(
        uri, "select artifact_location from experiments where experiment_id = ?", "0"
    ).removesuffix("/0")


def _first(uri: str, query: str, value: str) -> str:
    """The first answer of a local store as text; empty where there is none, and where it is no store of MLflow's."""
    path = sqlite_path(uri)
    with suppress(sqlite3.DatabaseError):
        if path is not None and path.is_file():
            with closing(reading(path)) as connection:
                answer = connection.execute(query, (value,)).fetchone()
                return str(answer[0]) if answer else ""
    return ""

"""Finds a local store that was moved together with its runs, and corrects the paths of its artifacts."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rlplug_cli.mlflow.store import (
    ARTIFACTS,
    artifact_root,
    read_only_connection,
    sqlite_path,
    sqlite_uri,
)

#: Tables and columns of a store with paths of artifacts.
_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
)


def locate(uri: str, run: Path, run_id: str, requested: str) -> str | None:
    """Return the URI of the store that has a run: `uri`, or its new place if that SQLite file is gone.

    Candidates are `requested` and a file with the same name in each directory above the run. None if none has the run.
    """
    path = sqlite_path(uri)
    if path is None or path.exists():
        return uri
    above_run = (sqlite_uri(folder / path.name) for folder in run.absolute().parents)
    # Only files are asked: `_first_value` returns "" for a server.
    query = "select 1 from runs where run_uuid = ?"
    return next(
        (
            candidate
            for candidate in (requested, *above_run)
            if _first_value(candidate, query, run_id)
        ),
        None,
    )


def correct_artifact_paths(uri: str) -> None:
    """Correct the artifact paths in a local store that was moved: MLflow stores only absolute paths."""
    path = sqlite_path(uri)
    new = artifact_root(uri)
    query = "select artifact_location from experiments where experiment_id = ?"
    old = _first_value(uri, query, "0").removesuffix("/0")  # of MLflow's default experiment
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


def _first_value(uri: str, query: str, value: str) -> str:
    """Return the first value of a query of a local store as text; "" without one, or if it is not a store of MLflow."""
    path = sqlite_path(uri)
    with suppress(sqlite3.DatabaseError):
        if path is not None and path.is_file():
            with closing(read_only_connection(path)) as connection:
                answer = connection.execute(query, (value,)).fetchone()
                return str(answer[0]) if answer else ""
    return ""

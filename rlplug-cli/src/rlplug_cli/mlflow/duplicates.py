"""Distinguishes a copy of a run or a sweep from a moved one, by the directory that its MLflow run names.

A copy has the uid and often the `mlflow.json` of its original; it must not write into the original's curves.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_core.config import is_regular, read_json
from rlplug_core.errors import BadFile
from rlplug_core.runs import SWEEP

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

#: Tags of an MLflow run: its directory, the machine of that directory, and for a copy the MLflow run of the original.
PATH = "rlplug.path"
HOST = "rlplug.host"
ORIGINAL = "rlplug.copy_of"


def run_with_id(client: MlflowClient, run_id: str) -> Run | None:
    """Return the MLflow run with this id; None for "" and if MLflow no longer has it."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id) if run_id else None
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def is_copy(run: Run, directory: Path) -> bool:
    """Return whether an MLflow run names another directory that still has the uid of this one."""
    path = _path_tag(run)
    uid = _uid(directory)
    return (
        path is not None and bool(uid) and not _is_same_file(path, directory) and _uid(path) == uid
    )


def run_of_directory(runs: Sequence[Run], directory: Path) -> Run | None:
    """Return the MLflow run of this directory among runs with the same uid.

    It is the one that names the directory. If none does, the directory was moved, unless another directory still has
    the same uid: then it is a copy.
    """
    for run in runs:
        if _names_directory(run, directory):
            return run
    return None if any(is_copy(run, directory) for run in runs) else original(runs)


def original(runs: Sequence[Run]) -> Run | None:
    """Return the MLflow run that is not a copy, among runs with the same uid; None without any."""
    return min(runs, key=lambda run: ORIGINAL in run.data.tags, default=None)


def tags(directory: Path, original: Run | None = None) -> dict[str, str]:
    """Return the tags for a directory; `original` is given for a copy."""
    entries = {PATH: str(directory.absolute()), HOST: platform.node()}
    return entries if original is None else {**entries, ORIGINAL: original.info.run_id}


def update_directory(client: MlflowClient, run: Run, directory: Path) -> None:
    """Update the directory in an MLflow run after a move; a name that the user gave it in MLflow stays."""
    if _names_directory(run, directory) or run.info.lifecycle_stage != "active":
        return
    for key, value in tags(directory).items():
        client.set_tag(run.info.run_id, key, value)
    path = _path_tag(run)
    if path is not None and run.info.run_name == path.name:
        client.update_run(run.info.run_id, name=directory.absolute().name)


def directory_of(run: Run) -> str:
    """Return the directory that an MLflow run names, or ""."""
    return str(run.data.tags.get(PATH, ""))


def _path_tag(run: Run) -> Path | None:
    return Path(directory_of(run)) if directory_of(run) else None


def _names_directory(run: Run, directory: Path) -> bool:
    path = _path_tag(run)
    return path is not None and _is_same_file(path, directory)


def _is_same_file(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)  # a link to the directory is the same
    except (OSError, ValueError):  # it is gone, or its name has a null character
        return False


def _uid(directory: Path) -> str:
    """Return the uid of the run or the sweep in a directory, or "" if it has neither."""
    for path in (directory / "config.json", directory / SWEEP):
        if is_regular(path):
            with suppress(BadFile):
                content = read_json(path)
                return str(content.get("uid", "")) if isinstance(content, dict) else ""
    return ""

"""Tell the copy of a run or a sweep from one that was moved, by the directory that its MLflow run names.

A copy has the identity and often the `mlflow.json` of its original, into whose curves it must not write.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rlplug_core.config.files import from_json, regular
from rlplug_core.errors import BadFile
from rlplug_core.runs.directory import SWEEP

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

#: Tags of an MLflow run: its directory and the machine that this is on; of a copy, the MLflow run of its original.
PATH = "rlplug.path"
HOST = "rlplug.host"
ORIGINAL = "rlplug.copy_of"


def noted(client: MlflowClient, run_id: str) -> Run | None:
    """The MLflow run of this id; None for an empty one, and where MLflow has it no longer."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id) if run_id else None
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def is_copy(there: Run, here: Path) -> bool:
    """Return whether an MLflow run is that of another directory, which still holds what this one holds."""
    named = _named(there)
    uid = _uid(here)
    return named is not None and bool(uid) and not _same(named, here) and _uid(named) == uid


def own(found: Sequence[Run], here: Path) -> Run | None:
    """The MLflow run of this directory, among those of one identity.

    It is the one that names it. Else this was moved, unless another directory still holds the same: then it is a copy.
    """
    named = next((one for one in found if _names(one, here)), None)
    if named is not None or any(is_copy(one, here) for one in found):
        return named
    return original(found)


def original(found: Sequence[Run]) -> Run | None:
    """The first of the MLflow runs of one identity, if there is one: that which is no copy."""
    return min(found, key=lambda one: ORIGINAL in one.data.tags, default=None)


def tags(here: Path, original: Run | None = None) -> dict[str, str]:
    """Return what an MLflow run says of its directory; `original` is given where that is a copy."""
    place = {PATH: str(here.absolute()), HOST: platform.node()}
    return place if original is None else {**place, ORIGINAL: original.info.run_id}


def follow(client: MlflowClient, there: Run, here: Path) -> None:
    """Tell an MLflow run where its directory was moved to; a name that someone gave it in MLflow stays."""
    if _names(there, here) or there.info.lifecycle_stage != "active":
        return
    for key, value in tags(here).items():
        client.set_tag(there.info.run_id, key, value)
    named = _named(there)
    if named is not None and there.info.run_name == named.name:
        client.update_run(there.info.run_id, name=here.absolute().name)


def directory_of(there: Run) -> str:
    """The directory that an MLflow run names, empty where it names none."""
    return str(there.data.tags.get(PATH, ""))


def _named(there: Run) -> Path | None:
    return Path(directory_of(there)) if directory_of(there) else None


def _names(there: Run, here: Path) -> bool:
    named = _named(there)
    return named is not None and _same(named, here)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)  # a link leads to the directory itself
    except (OSError, ValueError):  # it is gone; a name with a null character is no file's
        return False


def _uid(directory: Path) -> str:
    """The identity of the run or the sweep in a directory, empty where there is neither."""
    for path in (directory / "config.json", directory / SWEEP):
        if regular(path):
            with suppress(BadFile):
                about = from_json(path)
                return str(about.get("uid", "")) if isinstance(about, dict) else ""
    return ""

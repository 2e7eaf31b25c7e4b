"""The parent run of a sweep in MLflow: the first run that is sent creates it, all others find it.

There is one per experiment, because MLflow's table shows runs only below a parent of their own experiment.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.mlflow import duplicates
from rlplug_cli.sweep.manifest import NAME, Sweep
from rlplug_core.config.files import as_type, from_json, opened, replace
from rlplug_core.runs.trust import sealed

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: The file in a sweep's directory that records its parent runs.
STATE = "mlflow.json"


def parent_of(run: Path, client: MlflowClient, uri: str, experiment: str) -> str | None:
    """Return the id of the parent of a run directory's MLflow run, created if needed; None outside a sweep."""
    directory = run.parent
    if not (directory / NAME).exists():
        return None
    with _lock(directory):
        state = _read(directory, uri)
        parent = duplicates.run_with_id(client, state["parents"].get(experiment, ""))
        if parent is None or duplicates.is_copy(parent, directory):
            state["parents"][experiment] = _find_or_create(directory, client, experiment)
            content = json.dumps(sealed(state), indent=1)
            replace(directory / STATE, content.encode())
        return str(state["parents"][experiment])


def _find_or_create(directory: Path, client: MlflowClient, experiment: str) -> str:
    """Return the parent's id; it is found by its uid if a process died before it could record the id."""
    sweep = as_type(from_json(directory / NAME), Sweep, directory / NAME)  # with a checked uid
    same_uid = client.search_runs([experiment], f"tags.`rlplug.uid` = '{sweep.uid}'")
    if own := duplicates.own(same_uid, directory):
        return str(own.info.run_id)
    tags = {
        "rlplug.uid": sweep.uid,
        "rlplug.kind": sweep.kind,
        **duplicates.tags(directory, duplicates.original(same_uid)),
        "mlflow.source.name": f"rlplug {sweep.kind}",
        "mlflow.source.type": "LOCAL",
    }
    name = directory.absolute().name
    run = client.create_run(experiment, int(sweep.created * 1000), tags, name)
    return str(run.info.run_id)


def _read(directory: Path, uri: str) -> dict[str, Any]:
    path = directory / STATE
    state: dict[str, object] = from_json(path) if os.path.lexists(path) else {}
    return state if state.get("tracking_uri") == uri else {"tracking_uri": uri, "parents": {}}


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    with opened(directory / "mlflow.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

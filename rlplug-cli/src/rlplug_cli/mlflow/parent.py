"""The parent run of a sweep in MLflow: the first run that is sent creates it, all others find it.

There is one per experiment, because MLflow's table shows runs only below a parent of their own experiment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.mlflow import duplicates
from rlplug_cli.sweep.manifest import NAME, Sweep
from rlplug_core.config import acquire_lock, as_type, open_lock, read_json, replace_file
from rlplug_core.runs import add_seal

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: The file in a sweep's directory that records its parent runs.
STATE = "mlflow.json"


def parent_of(
    run: Path,
    client: MlflowClient,
    uri: str,
    experiment: str,
) -> str | None:
    """Return the id of the parent of a run directory's MLflow run, created if needed; None outside a sweep."""
    directory = run.parent
    if not (directory / NAME).exists():
        return None
    path = directory / STATE
    with open_lock(directory / "mlflow.lock") as lock:
        acquire_lock(lock.fileno(), wait=True)
        state: dict[str, Any] = read_json(path) if os.path.lexists(path) else {}
        if state.get("tracking_uri") != uri:
            state = {"tracking_uri": uri, "parents": {}}
        parent = duplicates.run_with_id(client, state["parents"].get(experiment, ""))
        if parent is None or duplicates.is_copy(parent, directory):
            state["parents"][experiment] = _find_or_create(directory, client, experiment)
            content = json.dumps(add_seal(state), indent=1)
            replace_file(path, content.encode())
        return str(state["parents"][experiment])


def _find_or_create(
    directory: Path,
    client: MlflowClient,
    experiment: str,
) -> str:
    """Return the parent's id; it is found by its uid if a process died before it could record the id."""
    sweep = as_type(read_json(directory / NAME), Sweep, directory / NAME)  # checks the uid
    same_uid = client.search_runs([experiment], f"tags.`rlplug.uid` = '{sweep.uid}'")
    if existing := duplicates.run_of_directory(same_uid, directory):
        return str(existing.info.run_id)
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

"""The MLflow run above those of a sweep: made by whichever of them is sent first, found by all the others.

One per experiment, since MLflow's table shows runs below a parent of their own experiment only.
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
from rlplug_core.config.files import from_json, opened, replace
from rlplug_core.runs.trust import sealed

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: In the directory of a sweep: its description, and the parents that were made.
SWEEP = "sweep.json"
STATE = "mlflow.json"


def parent_of(run: Path, client: MlflowClient, uri: str, experiment: str) -> str | None:
    """The id of the parent of a run directory's MLflow run, which is made if need be; None outside a sweep."""
    directory = run.parent
    if not (directory / SWEEP).exists():
        return None
    with _locked(directory):
        state = _read(directory, uri)
        there = duplicates.noted(client, state["parents"].get(experiment, ""))
        if there is None or duplicates.is_copy(there, directory):
            state["parents"][experiment] = _found_or_made(directory, client, experiment)
            _write(directory, state)
        return str(state["parents"][experiment])


def _found_or_made(directory: Path, client: MlflowClient, experiment: str) -> str:
    """By its uid where a process died before it could note it."""
    sweep = from_json(directory / SWEEP)
    found = client.search_runs([experiment], f"tags.`rlplug.uid` = '{sweep['uid']}'")
    if mine := duplicates.own(found, directory):
        return str(mine.info.run_id)
    tags = {
        "rlplug.uid": sweep["uid"],
        "rlplug.kind": sweep["kind"],
        **duplicates.tags(directory, duplicates.original(found)),
        "mlflow.source.name": f"rlplug {sweep['kind']}",
        "mlflow.source.type": "LOCAL",
    }
    run = client.create_run(
        experiment, int(sweep["created"] * 1000), tags, directory.absolute().name
    )
    return str(run.info.run_id)


def _read(directory: Path, uri: str) -> dict[str, Any]:
    path = directory / STATE
    state: dict[str, object] = from_json(path) if os.path.lexists(path) else {}
    return state if state.get("tracking_uri") == uri else {"tracking_uri": uri, "parents": {}}


def _write(directory: Path, state: dict[str, object]) -> None:
    replace(directory / STATE, json.dumps(sealed(state), indent=1).encode())


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with opened(directory / "mlflow.lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

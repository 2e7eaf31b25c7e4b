"""The end of a sweep in MLflow: what its runs have not sent yet, then the parents' artifacts and status."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlplug_cli.lookup import directories
from rlplug_cli.mlflow import duplicates, store
from rlplug_cli.mlflow.mirror import Mirror
from rlplug_cli.mlflow.parent import STATE
from rlplug_core.config.files import from_json
from rlplug_core.errors import UsageError, plain, warn
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.trust import genuine


def conclude(directory: Path, files: Sequence[Path], status: str) -> None:
    """Send the rest of a sweep; `status` is MLflow's. Its troubles are said and end nothing.

    Runs that no sender was started for, since MLflow is switched off, are left alone.
    """
    begun = [path.absolute() for path in directories(directory) if (path / "mlflow.lock").exists()]
    if not begun:
        return
    store.settle()
    try:
        for path in begun:
            _send(path)
        _tell_parents(directory, files, status)
    except Exception as error:  # noqa: BLE001 - whatever MLflow raises, the runs are there
        said = plain(str(error))
        warn(f"MLflow has not got all of {directory} ({said}); the same command tries again")


def _send(run: Path) -> None:
    mirror = Mirror(run)
    try:
        while mirror.send():
            pass
        if not RunDirectory(run).running():
            mirror.conclude()
    finally:
        mirror.close()


def _tell_parents(directory: Path, files: Sequence[Path], status: str) -> None:
    if not (directory / STATE).exists():
        return
    from mlflow import MlflowClient

    state = from_json(directory / STATE)
    if state["tracking_uri"] != store.tracking_uri() and not genuine(state):
        raise UsageError(
            f"{directory / STATE} sends to {state['tracking_uri']}, and this account did not write it"
        )
    client = MlflowClient(tracking_uri=state["tracking_uri"])
    for run in state["parents"].values():
        there = duplicates.noted(client, run)
        if there is None or duplicates.is_copy(there, directory):
            continue  # it was deleted for good, or is the original's, in an experiment that no run of this copy is in
        duplicates.follow(client, there, directory)
        for path in files:
            client.log_artifact(run, str(path))
        client.set_terminated(run, status)

"""Ends a sweep in MLflow: sends the rest of its runs, then the artifacts and the status of the parents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rlplug_cli.mlflow import duplicates, store
from rlplug_cli.mlflow.mirror import Mirror
from rlplug_cli.mlflow.parent import STATE
from rlplug_core.config import read_json
from rlplug_core.errors import UsageError, plain, warn
from rlplug_core.loop import notice
from rlplug_core.runs import genuine, run_directories


@notice("recording the end in MLflow")
def conclude(directory: Path, files: Sequence[Path], status: str) -> None:
    """Send the rest of a sweep; `status` is one of MLflow's. A failure is only reported, because the runs are safe.

    Runs without a sender, because MLflow is switched off, are skipped.
    """
    mirrored = [
        path.absolute() for path in run_directories(directory) if (path / "mlflow.lock").exists()
    ]
    if not mirrored:
        return
    store.apply_settings()
    try:
        for path in mirrored:
            with closing(Mirror(path)) as mirror:
                mirror.send_rest()
        _end_parents(directory, files, status)
    except Exception as error:  # noqa: BLE001 - MLflow may raise anything; the runs are safe
        message = plain(str(error))
        warn(
            f"MLflow does not have all of {directory} ({message}); type the same command again to send the rest"
        )


def _end_parents(directory: Path, files: Sequence[Path], status: str) -> None:
    if not (directory / STATE).exists():
        return
    from mlflow import MlflowClient

    state = read_json(directory / STATE)
    if state["tracking_uri"] != store.tracking_uri() and not genuine(state):
        raise UsageError(
            f"{directory / STATE} names {state['tracking_uri']}, and this account did not write it"
        )
    client = MlflowClient(tracking_uri=state["tracking_uri"])
    for run in state["parents"].values():
        parent = duplicates.run_with_id(client, run)
        if parent is None or duplicates.is_copy(parent, directory):
            continue  # deleted for good, or it belongs to the original of this copy
        duplicates.update_directory(client, parent, directory)
        if store.has_own_artifacts(state["tracking_uri"], parent.info.artifact_uri):
            for path in files:
                client.log_artifact(run, str(path))
        client.set_terminated(run, status)

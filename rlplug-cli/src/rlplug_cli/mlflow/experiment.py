"""The entries for a run in MLflow: its experiment, its tags and its parameters."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlplug_cli.mlflow import store
from rlplug_cli.mlflow.batch import text_of
from rlplug_core.errors import plain

if TYPE_CHECKING:
    from mlflow import MlflowClient


def experiment_id(client: MlflowClient, name: str, uri: str) -> str:
    """Return the id of the experiment of this name; another process may create it first.

    Raises:
        Damaged: the experiment was deleted.
    """
    from mlflow.exceptions import MlflowException

    tags = {"mlflow.experiment.primaryMetric.name": "eval/return_mean"}
    tags["mlflow.experiment.primaryMetric.greaterIsBetter"] = "True"
    tags["mlflow.experimentKind"] = (
        "custom_model_development"  # otherwise the UI shows prompts and traces
    )
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        artifacts = store.artifact_root(uri)
        location = (
            None if artifacts is None else f"{artifacts}/{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}"
        )
        try:
            return str(client.create_experiment(name, location, tags))
        except MlflowException:
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        raise store.Damaged(
            f"its experiment '{plain(name)}' was deleted; restore it: mlflow experiments restore "
            f"--experiment-id {experiment.experiment_id}, with MLFLOW_TRACKING_URI={plain(uri)}"
        )
    return str(experiment.experiment_id)


def run_tags(config: Mapping[str, Any]) -> dict[str, str]:
    from rlplug_cli import __version__

    tags = {
        "rlplug.uid": config["uid"],
        "rlplug.group": config["group"],
        "rlplug.version": __version__,
        "mlflow.user": _user(),
        "mlflow.source.name": f"rlplug run {config['algorithm']} {config['env']}",
        "mlflow.source.type": "LOCAL",
    }
    tags |= {
        f"rlplug.source.{role}": source["sha256"]
        for role, source in config.get("sources", {}).items()
    }
    return {key: text_of(value) for key, value in tags.items()}


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container may run under a number without a name
        return str(os.getuid()) if hasattr(os, "getuid") else "unknown"


def parameters(config: Mapping[str, Any]) -> dict[str, object]:
    """Return a run's parameters: algorithm, environment, options with a value, and the runner."""
    options = {
        name: value for name, value in config["options"].items() if value not in (None, "", [])
    }
    environment = config.get("environment", {})
    runner = {"runner": environment["runner"]} if "runner" in environment else {}
    return {"algorithm": config["algorithm"], "env": config["env"], **options, **runner}

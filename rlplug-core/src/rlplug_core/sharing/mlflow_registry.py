"""Shared agents as versions of registered models in MLflow; this uses only its client, and no pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlplug_core.config.files import content
from rlplug_core.errors import MissingPackage, RlplugError, UsageError, plain

#: The folder of an agent among the artifacts of its MLflow run, and the name of their experiment.
ARTIFACTS = "agent"
EXPERIMENT = "shared agents"
SQLITE = "sqlite:///"
#: Environment variables for MLflow, which reads them when it is imported; values that are set already stay.
SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


@dataclass(frozen=True)
class RegisteredModel:
    """A version of a registered model; without `version`, reading takes the newest one.

    The server is that of `MLFLOW_TRACKING_URI`, or `mlflow.db` in the working directory as for runs.
    """

    model: str
    version: str = ""

    @property
    def name(self) -> str:
        return f"mlflow:{self.model}{'/' * bool(self.version)}{self.version}"

    def read(self, file: str, max_bytes: int) -> bytes:
        mlflow = _library()
        uri = tracking_uri()
        try:
            root = self._root(mlflow.MlflowClient(uri, uri))
            artifacts = mlflow.artifacts.list_artifacts(artifact_uri=root, tracking_uri=uri)
            sizes = {
                Path(artifact.path).name: int(artifact.file_size or 0) for artifact in artifacts
            }
            if file not in sizes:
                raise RlplugError(f"{self.name} is not a shared agent: it has no {file}")
            if sizes[file] > max_bytes:
                raise RlplugError(f"{file} of {self.name} has more than {max_bytes:,} bytes")
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                mlflow.artifacts.download_artifacts(
                    artifact_uri=f"{root}/{file}", dst_path=folder, tracking_uri=uri
                )
                return content(Path(folder, file), limit=max_bytes)
        except (mlflow.MlflowException, OSError) as error:
            raise UsageError(f"{self.name} cannot be read ({plain(str(error))})") from error

    def write(self, files: Mapping[str, bytes]) -> str:
        mlflow = _library()
        uri = tracking_uri()
        if self.version:
            raise UsageError(f"MLflow chooses the next version itself; write mlflow:{self.model}")
        try:
            client = mlflow.MlflowClient(uri, uri)
            run = client.create_run(_experiment(client, uri), run_name=self.model)
            with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                for name, data in files.items():
                    Path(folder, name).write_bytes(data)
                client.log_artifacts(run.info.run_id, folder, ARTIFACTS)
            client.set_terminated(run.info.run_id)
            if not client.search_registered_models(f"name = '{self.model}'"):
                client.create_registered_model(self.model)
            source = f"{run.info.artifact_uri}/{ARTIFACTS}"
            created = client.create_model_version(self.model, source, run.info.run_id)
        except (mlflow.MlflowException, OSError) as error:
            raise UsageError(f"{self.name} cannot be written ({plain(str(error))})") from error
        return f"mlflow:{self.model}/{created.version}"

    def _root(self, client: Any) -> str:
        """Return the URI of the version's artifacts."""
        version = self.version
        if not version:
            versions = client.search_model_versions(f"name = '{self.model}'")
            if not versions:
                raise UsageError(f"MLflow has no registered model '{self.model}'")
            version = str(max(int(version.version) for version in versions))
        return str(client.get_model_version_download_uri(self.model, version))


def tracking_uri() -> str:
    """Return the URI of the server, or of the SQLite file of this directory, with an absolute path."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"{SQLITE}mlflow.db"
    if not uri.startswith(SQLITE):
        return uri
    return f"{SQLITE}{Path(uri.removeprefix(SQLITE)).absolute()}"


def _library() -> Any:
    """Import MLflow."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow
    except ImportError as error:
        raise MissingPackage(
            "sources that start with mlflow: need MLflow, which is not installed: python -m pip install rlplug-cli"
        ) from error
    return mlflow


def _experiment(client: Any, uri: str) -> str:
    """Return the id of the experiment of shared agents, made if missing; a SQLite store has its files next to it."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment:
        return str(experiment.experiment_id)
    local = uri.startswith(SQLITE)
    files = Path(uri.removeprefix(SQLITE)).parent / "mlartifacts"
    return str(client.create_experiment(EXPERIMENT, files.as_uri() if local else None))

"""One run's mirror in MLflow: sends the journal's records after a saved cursor, in batches that may be sent twice.

MLflow's key of a metric is (run, key, value, step, timestamp), so sending a batch again with the journal's
timestamps adds nothing. A crash between sending a batch and saving the cursor is therefore harmless.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rlplug_cli.mlflow import duplicates, episodes, relocation, store
from rlplug_cli.mlflow.batch import BATCH, ERROR, Batch, key_of, text_of
from rlplug_cli.mlflow.experiment import experiment_id, parameters, run_tags
from rlplug_cli.mlflow.parent import parent_of
from rlplug_core.config import (
    acquire_lock,
    as_type,
    is_directory,
    is_regular,
    open_lock,
    read_json,
    replace_file,
    sync_file,
)
from rlplug_core.errors import BadFile, RlplugError, UsageError, plain, warn
from rlplug_core.runs import (
    RunDirectory,
    add_seal,
    genuine,
    locate_record,
    shell_word,
    tail_journal,
    writing,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

STATE = "mlflow.json"
_STATUS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


class Busy(UsageError):
    """Another process is sending this run."""


@dataclass
class State:
    """The content of `mlflow.json`: the store, the MLflow run, and the last record that MLflow got.

    Attributes:
        cursor, time: sequence number and time of that record.
        ahead: whether MLflow once had more records than the journal, which had lost its end.
        seal: shows that this account wrote the file.
    """

    tracking_uri: str
    experiment_id: str = ""
    run_id: str = ""
    cursor: int = 0
    time: int = 0
    ahead: bool = False
    seal: str = ""

    @classmethod
    def read(cls, run: Path) -> State | None:
        """Return the saved state of a run, or None if nothing was sent yet.

        Raises:
            BadFile: it cannot be read.
        """
        path = run / STATE
        try:
            return as_type(read_json(path), cls, path) if os.path.lexists(path) else None
        except BadFile as error:
            raise BadFile(
                path, f"{error.reason}; delete it, and MLflow gets the missing records"
            ) from error

    def write(self, run: Path) -> None:
        """Save durably: a reader sees the old state or the new one; raises NotWritten."""
        with writing(run / STATE):
            replace_file(run / STATE, json.dumps(add_seal(asdict(self)), indent=1).encode())


class Mirror:
    """Sends one run to MLflow; keeps other processes from doing so until `close`. Notes for the user go to `say`."""

    def __init__(
        self,
        run: Path,
        uri: str | None = None,
        say: Callable[[str], None] = warn,
    ) -> None:
        self.run = run
        self._say = say
        self.state = _state(run, uri or store.tracking_uri())
        self.records = 0
        self._position = 0
        #: The points of each metric in MLflow, as (step, value), if MLflow was ahead of the journal.
        self._sent_points: dict[str, set[tuple[int, str]]] = {}
        #: Time of the last record that no `end` follows, in milliseconds; 0 after an `end`.
        self._open_since = 0
        self._client: MlflowClient | None = None
        self._lock = _lock(run / "mlflow.lock")

    def close(self) -> None:
        self._lock.close()

    def send(self) -> bool:
        """Send the next batch and return whether there was one; raises the errors of MLflow."""
        if not self._position:
            if self.state.run_id:
                self._connect()  # sets the cursor of a copied run to 0
            self._find_position()
        position = self._position
        batch, after = self._next_records(position)
        if not batch.cursor:
            self._position = after
            return False
        # A loss of power must not leave MLflow ahead of the journal.
        sync_file(self.run / "journal.jsonl")
        self._log(self._connect(), batch)
        self.records += batch.cursor - self.state.cursor
        self.state.cursor = batch.cursor
        self.state.time = batch.time
        self.state.write(self.run)
        self._position = after
        return True

    @property
    def is_over(self) -> bool:
        """Return whether the last record ends the run's last process."""
        return not self._open_since

    def conclude(self) -> None:
        """Mark a run as killed if its process is gone and its journal has no end."""
        if self._open_since:
            self._finish(self._connect(), "KILLED", self._open_since)
            self._open_since = 0

    def send_rest(self) -> None:
        """Send all records, and the end of a run whose process is gone; raises the errors of MLflow."""
        while self.send():
            pass
        if not RunDirectory(self.run).running():
            self.conclude()

    def check_store(self) -> None:
        """Ask the store for the run by a new connection: an open one may write to a file that was moved away.

        Raises:
            RlplugError: the store does not have it.
        """
        uri = self.state.tracking_uri
        path = store.sqlite_path(uri)
        if path is None:
            exists = duplicates.run_with_id(self._connect(), self.state.run_id) is not None
        else:
            exists = path.is_file() and store.holds_run(path, self.state.run_id)
        if not exists:
            raise RlplugError(
                f"MLflow at {uri} does not have this run: the store was moved or replaced meanwhile; "
                f"'rlplug sync {shell_word(self.run)}' sends all of it"
            )

    def _connect(self) -> MlflowClient:
        """Return the client; the first call creates the store and the MLflow run."""
        if self._client is None:
            store.apply_settings()
            store.prepare(self.state.tracking_uri)
            relocation.correct_artifact_paths(self.state.tracking_uri)
            from mlflow import MlflowClient

            client = MlflowClient(tracking_uri=self.state.tracking_uri)
            run = duplicates.run_with_id(client, self.state.run_id)
            store_was_replaced = run is None and bool(self.state.run_id)  # by another store
            if store_was_replaced or (run is not None and duplicates.is_copy(run, self.run)):
                self.state = State(self.state.tracking_uri)
            if not self.state.run_id:
                self._create(client, run)
            elif run is not None:
                duplicates.update_directory(client, run, self.run)
            self._client = client
        return self._client

    def _create(self, client: MlflowClient, original: Run | None) -> None:
        """Find or create the MLflow run; it is found by its uid if a process died before it could save the id."""
        config = RunDirectory(self.run).config
        env = config["env"]
        name = env.rpartition("/")[2] if ".py:" in env else env  # a file without its directory
        experiment = experiment_id(client, name, self.state.tracking_uri)
        runs = [*client.search_runs([experiment], f"tags.`rlplug.uid` = '{config['uid']}'")]
        runs += [original] if original is not None else []  # a search does not find deleted runs
        run = duplicates.run_of_directory(runs, self.run)
        if run is not None:
            duplicates.update_directory(client, run, self.run)
        else:
            run = self._create_run(
                client, experiment, config, original or duplicates.original(runs)
            )
        self.state.experiment_id = experiment
        self.state.run_id = run.info.run_id
        self._log_parameters(client, config, run.data.params)
        self.state.write(self.run)

    def _create_run(
        self,
        client: MlflowClient,
        experiment: str,
        config: Mapping[str, Any],
        original: Run | None,
    ) -> Run:
        tags = run_tags(config) | duplicates.tags(self.run, original)
        parent = parent_of(self.run, client, self.state.tracking_uri, experiment)
        if parent:
            tags["mlflow.parentRunId"] = parent
        run = client.create_run(
            experiment, int(config["created"] * 1000), tags, self.run.absolute().name
        )
        if original is not None:
            original_path = plain(duplicates.directory_of(original))
            self._say(f"{self.run} is a copy of {original_path} and gets its own MLflow run")
        return run

    def _log_parameters(
        self,
        client: MlflowClient,
        config: Mapping[str, object],
        known: Mapping[str, str],
    ) -> None:
        """Log the missing parameters; MLflow accepts each only once."""
        from mlflow.entities import Param

        new = [
            Param(key_of(name), text_of(value))
            for name, value in parameters(config).items()
            if key_of(name) not in known
        ]
        client.log_batch(self.state.run_id, params=new)

    def _log(self, client: MlflowClient, batch: Batch) -> None:
        """Send a batch, and the status of a run that continues or ends with it."""
        from mlflow.entities import Metric, RunTag

        run_id = self.state.run_id
        if batch.resumed:
            client.update_run(run_id, status="RUNNING")
            if ERROR in client.get_run(run_id).data.tags:  # of an earlier process
                client.delete_tag(run_id, ERROR)
        metrics = [
            Metric(key, value, time, step)
            for key, value, step, time in self._missing_points(client, batch)
        ]
        tags = [RunTag(key, value) for key, value in batch.tags.items()]
        if metrics or tags:
            client.log_batch(run_id, metrics=metrics, tags=tags)
        if batch.end is not None:
            self._finish(client, _STATUS[batch.end.data["status"]], batch.end.time)

    def _finish(self, client: MlflowClient, status: str, moment: int) -> None:
        episodes.write(self.run)
        uri = client.get_run(self.state.run_id).info.artifact_uri
        if store.has_own_artifacts(self.state.tracking_uri, uri):
            for path, folder in _artifacts(self.run):
                client.log_artifact(self.state.run_id, str(path), folder)
        else:
            self._say(
                f"the files of {self.run} are not sent to MLflow, which would put them outside of the store's "
                f"directory, into {plain(uri)}; name the store in {store.URI} to allow this"
            )
        client.set_terminated(self.state.run_id, status, moment)

    def _find_position(self) -> None:
        """Find the position after the last record that MLflow got; start again if the journal does not have it.

        The journal lacks it after a loss of power on an unreliable disk, or in a copy from a backup. Points that
        MLflow has are then not sent again, even if the run recorded them once more with another time.
        """
        last = (
            locate_record(self.run / "journal.jsonl", self.state.cursor)
            if self.state.cursor
            else None
        )
        if self.state.time and (last is None or last[0].time != self.state.time):
            self.state.cursor = 0
            self.state.time = 0
            self.state.ahead = True
        elif last is not None:
            record, self._position = last
            self._open_since = 0 if record.kind == "end" else record.time

    def _missing_points(
        self,
        client: MlflowClient,
        batch: Batch,
    ) -> list[tuple[str, float, int, int]]:
        """Return the points of a batch that MLflow does not have; all of them unless it was ahead of the journal."""
        if not self.state.ahead:
            return batch.metrics
        for key in {key for key, *_ in batch.metrics} - self._sent_points.keys():
            points = client.get_metric_history(self.state.run_id, key)
            self._sent_points[key] = {(point.step, repr(point.value)) for point in points}
        return [
            metric
            for metric in batch.metrics
            if (metric[2], repr(metric[1])) not in self._sent_points[metric[0]]
        ]

    def _next_records(self, position: int) -> tuple[Batch, int]:
        """Return the records from a byte position of the journal that fit one request, and the next position."""
        batch = Batch()
        last = self.state.cursor if position else 0
        for record, after in tail_journal(self.run / "journal.jsonl", position, last):
            self._open_since = 0 if record.kind == "end" else record.time
            if record.seq > self.state.cursor:
                if batch.cursor and len(batch.metrics) + len(record.data) > BATCH:
                    break
                batch.add(record)
            position = after
            if batch.end is not None:
                break
        return batch, position


def _artifacts(run: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the files of a run to send to MLflow, each with its path there."""
    for path in _files(run, "*"):
        if path.name in ("config.json", episodes.NAME, "error.txt"):
            yield path, None
    for path in _files(run / "sources", "*.py"):
        yield path, "sources"
    for folder in ("images", "videos"):
        for path in _files(run / folder, "[!.]*"):
            yield path, folder
    checkpoints = run / "checkpoints"
    best = (
        sorted(filter(is_directory, checkpoints.glob("best-*")))
        if is_directory(checkpoints)
        else []
    )
    for path in _files(best[-1], "*") if best else ():
        yield path, f"checkpoints/{best[-1].name}"


def _files(directory: Path, pattern: str) -> list[Path]:
    """Return the sorted regular files of a directory; links are not followed, because they may be planted."""
    return sorted(filter(is_regular, directory.glob(pattern))) if is_directory(directory) else []


def _state(run: Path, requested: str) -> State:
    """Return the state of a run's mirror: that of `mlflow.json`, if it names `requested` or this account wrote it.

    Raises:
        UsageError: it names another store and another account wrote it, or the store is gone.
    """
    state = State.read(run)
    if state is None:
        return State(requested)
    written_here = genuine(asdict(state))
    uri = plain(state.tracking_uri)
    located = relocation.locate(state.tracking_uri, run, state.run_id, requested)
    if located is None:
        raise UsageError(
            f"the store {uri} of {run} is gone; if it was moved, set {store.URI}='sqlite:///PATH', else delete "
            f"{run / STATE}, and MLflow gets the whole run again"
        )
    state.tracking_uri = located
    if written_here or located == requested:
        return state
    raise UsageError(
        f"{run / STATE}, which this account did not write, names {uri}; if that is yours, set "
        f"{store.URI}='{plain(located)}', else delete the file"
    )


def _lock(path: Path) -> IO[bytes]:
    file = open_lock(path)  # held until close()
    try:
        acquire_lock(file.fileno())
    except BlockingIOError as error:
        file.close()
        raise Busy(
            f"another process is sending run {path.parent}; wait until it has ended"
        ) from error
    return file

"""`--log tensorboard`: all metrics and options of a run as TensorBoard's event files, in its `tensorboard/`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rlplug_cli.loggers.following import Follower, finite_metrics
from rlplug_core.config import hold_directory
from rlplug_core.plugins import RunView, hookimpl
from rlplug_core.runs import writing

FOLDER = "tensorboard"
_events: dict[Path, Events] = {}


@hookimpl
def rlplug_run_start(run: RunView) -> None:
    """Write the whole journal again, because TensorBoard would also show records that a resume superseded."""
    _events[run.path] = Events(run.path / FOLDER, run.journal, run.config)


@hookimpl
def rlplug_run_log(run: RunView) -> None:
    _events[run.path].write()


@hookimpl
def rlplug_run_end(run: RunView) -> None:
    if events := _events.pop(run.path, None):  # a run may fail before it starts
        events.close()


class Events:
    """The event file of one run; steps are env steps, times those of the journal."""

    def __init__(
        self,
        folder: Path,
        journal: Path,
        config: Mapping[str, Any],
    ) -> None:
        self.follower = Follower(journal)
        self.folder = ExitStack()
        with writing(folder):
            directory = self.folder.enter_context(hold_directory(folder))
            for old in directory.glob("events.out.tfevents.*"):
                old.unlink()
        self.writer = EventFileWriter(str(directory))
        # For the tab HParams; lists become text.
        options = {"algorithm": config["algorithm"], "env": config["env"], **config["options"]}
        values = {
            name: value if isinstance(value, int | float) else str(value)
            for name, value in options.items()
        }
        summary = hparams.hparams_pb(values, start_time_secs=config["created"])
        self.writer.add_event(Event(wall_time=config["created"], summary=summary))
        self.write()

    def write(self) -> None:
        for record in self.follower.new():
            if metrics := finite_metrics(record):
                event = Event(wall_time=record.time / 1000, step=record.step)
                for name, value in metrics.items():
                    event.summary.value.add(tag=name, simple_value=value)
                self.writer.add_event(event)
        self.writer.flush()

    def close(self) -> None:
        self.write()
        self.writer.close()
        self.folder.close()

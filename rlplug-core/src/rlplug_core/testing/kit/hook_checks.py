"""Checks of hook plugins: they get the events of a run and must not raise, change options or keep threads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from rlplug_core.errors import UsageError
from rlplug_core.plugins import Hooks, records
from rlplug_core.plugins.records import Record, canonical
from rlplug_core.plugins.spec import PartSpec
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.journal import Journal
from rlplug_core.runs.run import Run
from rlplug_core.testing.kit.outcome import Failed

#: The name and the options of the run whose events are sent.
NAME = "kit"
OPTIONS: dict[str, object] = {"seed": 1, "total_timesteps": 1000, "num_envs": 8}


class HooksSubject:
    """The hook plugins of a distribution.

    Raises:
        UsageError: the distribution has no hooks.
    """

    def __init__(self, name: str) -> None:
        hooks = [record for record in records() if record.group == "hooks"]
        self.records = [record for record in hooks if record.distribution == canonical(name)]
        if not self.records:
            known = sorted({record.distribution for record in hooks})
            raise UsageError(f"{name} has no hooks ({', '.join(known) or 'nothing installed'} has)")

    @cached_property
    def runs(self) -> MadeUpRuns:
        """The effects of the events of two runs, sent to these plugins once."""
        return MadeUpRuns(self.records)


class MadeUpRuns:
    """Sends the events of two made-up runs to the plugins and records their effects."""

    def __init__(self, plugins: list[Record]) -> None:
        self.reports: list[str] = []
        self.hooks = Hooks(enabled=False, report=self.reports.append)
        self.threads = set(threading.enumerate())
        for record in plugins:
            self.hooks.add(PartSpec.parse("hook", record.full_name).build(), record.full_name)
        self.options = copy.deepcopy(OPTIONS)
        self.origins = self.hooks.configure(self.options)
        self.send()

    def send(self) -> None:
        """Send the events of a run that finishes, and of a run that fails."""
        for error in (None, RuntimeError("the environment broke")):
            directory = RunDirectory.create(Path("runs"), None, NAME)
            config = {
                "name": NAME,
                "uid": "0",
                "group": "0",
                "algorithm": "a2c",
                "env": "CartPole-v1",
            }
            directory.write_config(
                {**config, "options": dict(OPTIONS), "origins": {}, "created": 0.0}
            )
            journal = Journal(directory.journal_path, 0)
            self.hooks.write = lambda kind, data, journal=journal: journal.write(kind, 100, data)  # type: ignore[misc]
            journal.write("start", 0, config)
            self._send(Run(directory), journal, error)
            journal.close()
            directory.unlock()
        self.hooks.doctor([])

    def _send(
        self,
        run: Run,
        journal: Journal,
        error: Exception | None,
    ) -> None:
        """Send all events of one run in their order."""
        self.hooks.run_start(run)
        self.hooks.run_log(run, 100, {"loss/policy": 0.5, "perf/wall_s": 1.0})
        columns: dict[str, Sequence[float]] = {"steps": [90, 95], "workers": [0, 0]}
        self.hooks.episodes(run, 100, {**columns, "returns": [9.0, 11.0], "lengths": [9, 11]})
        self.hooks.evaluation(run, 100, (9.0, 11.0), (9, 11))
        checkpoints = run.path / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        self.hooks.run_checkpoint(run, checkpoints, "periodic")
        if error is not None:
            self.hooks.run_error(run, error)
        status = "failed" if error else "finished"
        journal.write("end", 100, {"status": status})
        self.hooks.run_end(run, status)


def registered(subject: HooksSubject) -> None:
    """Each entry point can be loaded, and its hooks have existing names and arguments."""
    for record in subject.records:
        if record.status != "ok":
            raise Failed(f"{record} is {record.status}: {record.reason}")
        hooks = Hooks(enabled=False, report=lambda sentence: None)
        hooks.add(PartSpec.parse("hook", record.full_name).build(), record.full_name)
        if hooks.failed:
            raise Failed(hooks.failed[record.full_name])


def events(subject: HooksSubject) -> None:
    """No hook raises during a run that finishes and a run that fails."""
    if subject.runs.reports:
        raise Failed(subject.runs.reports[0])


def options(subject: HooksSubject) -> None:
    """It removes no option, and changes none unless that is its purpose."""
    runs = subject.runs
    if runs.origins:
        name, plugin = next(iter(runs.origins.items()))
        raise Failed(
            f"{plugin} sets option '{name}' to {runs.options[name]!r} in every run; document that and "
            "expect this failure, or leave options to the user"
        )


def leftovers(subject: HooksSubject) -> None:
    """After the end of a run no thread of it is left."""
    left = [
        thread.name
        for thread in threading.enumerate()
        if thread not in subject.runs.threads and not thread.daemon
    ]
    if left:
        raise Failed(
            f"after the end of the run the thread '{left[0]}' still runs; join it in rlplug_run_end"
        )

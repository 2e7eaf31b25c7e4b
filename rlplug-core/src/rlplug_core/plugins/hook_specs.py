"""The hooks of rlplug: behavior during a run. All are called in the parent process, never per env step.

A hook that raises is reported once with its plugin's name, disabled for the rest of that run, and the run is tagged
`rlplug.hook_failed`; training continues. A hook implementation may take fewer arguments than its specification.

    from rlplug_core.plugins.hook_specs import hookimpl

    @hookimpl
    def rlplug_run_end(run, status):
        print(run.path, status)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pluggy

#: The name of the pluggy project.
PROJECT = "rlplug"

hookspec = pluggy.HookspecMarker(PROJECT)
#: Marks a function or a method as one of the hooks.
hookimpl = pluggy.HookimplMarker(PROJECT)


class RunView(Protocol):
    """The view that hooks have of a run: its name, its directory, its journal, and the content of `config.json`.

    Hooks can add to its record; see `hook_view.HookView`. `config` is a copy.
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def journal(self) -> Path: ...
    @property
    def config(self) -> dict[str, Any]: ...


@hookspec
def rlplug_configure(config: dict[str, object]) -> None:
    """Called once before a run is built, with the resolved options; may change values in place, but not remove any."""


@hookspec
def rlplug_run_start(run: RunView) -> None:
    """Called when the run directory and its journal exist, before the first step of a new or resumed run."""


@hookspec
def rlplug_run_log(
    run: RunView,
    step: int,
    metrics: Mapping[str, float],
) -> None:
    """Called after each log record with its values, which the journal has at env step `step`."""


@hookspec
def rlplug_episodes(
    run: RunView,
    step: int,
    episodes: Mapping[str, Sequence[float]],
) -> None:
    """Called after each log record with the episodes since the last one, as columns.

    The columns are `steps`, `returns`, `lengths`, `workers` and `info/NAME` for each number in the last `info`.
    """


@hookspec
def rlplug_evaluation(
    run: RunView,
    step: int,
    returns: Sequence[float],
    lengths: Sequence[int],
) -> None:
    """Called after every evaluation while a run trains, with the return and the length of each of its episodes."""


@hookspec
def rlplug_run_checkpoint(run: RunView, path: Path, reason: str) -> None:
    """Called after a checkpoint is durable.

    `reason` is `begin`, `periodic`, `best`, `final`, `paused` or `interrupted`.
    """


@hookspec
def rlplug_run_end(run: RunView, status: str) -> None:
    """Called at the end, after the last journal record; `status` is `finished`, `failed` or `interrupted`.

    If a finished run's process was killed before all hooks had ended, or one of them failed, `resume` calls
    `rlplug_run_start` and this again.
    """


@hookspec
def rlplug_run_error(run: RunView, error: BaseException) -> None:
    """Called before `rlplug_run_end` when the run failed."""


@hookspec
def rlplug_doctor(report: list[str]) -> None:
    """Called by `rlplug doctor`; append one sentence per finding."""

"""Calls the hook plugins of a run, each isolated: a failing one is reported once, switched off, and tagged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pluggy

from rlplug_core.config.targets import describe
from rlplug_core.errors import RlplugError
from rlplug_core.plugins import hook_specs as specifications
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.hook_specs import RunView
from rlplug_core.plugins.loading import load
from rlplug_core.plugins.records import Record

TAG = "rlplug.hook_failed"


def _to_stderr(sentence: str) -> None:
    print(f"rlplug: {sentence}", file=sys.stderr)  # noqa: T201


class Hooks:
    """The enabled hook plugins of one run.

    Args:
        enabled: False for a run without any.
        report: takes one sentence per plugin that failed.
        tag: writes tags into the run's journal; may be set later, before `run_start`.
    """

    def __init__(
        self,
        enabled: bool = True,
        report: Callable[[str], None] = _to_stderr,
        tag: Callable[[Mapping[str, str]], Any] | None = None,
    ) -> None:
        self.report, self.tag = report, tag
        #: Plugin name to what it failed with.
        self.failed: dict[str, str] = {}
        self._manager = pluggy.PluginManager(specifications.PROJECT)
        self._manager.add_hookspecs(specifications)
        for record in records() if enabled else ():
            if record.group == "hooks" and record.status in ("ok", "shadowed"):
                self._register(record)

    def configure(self, options: dict[str, Any]) -> None:
        self._call("rlplug_configure", config=options)

    def run_start(self, run: RunView) -> None:
        self._tag()
        self._call("rlplug_run_start", run=run)

    def run_log(self, run: RunView, step: int, metrics: Mapping[str, float]) -> None:
        self._call("rlplug_run_log", run=run, step=step, metrics=metrics)

    def run_checkpoint(self, run: RunView, path: Path, reason: str) -> None:
        self._call("rlplug_run_checkpoint", run=run, path=path, reason=reason)

    def run_end(self, run: RunView, status: str) -> None:
        self._call("rlplug_run_end", run=run, status=status)

    def run_error(self, run: RunView, error: BaseException) -> None:
        self._call("rlplug_run_error", run=run, error=error)

    def doctor(self, report: list[str]) -> None:
        self._call("rlplug_doctor", report=report)

    def _register(self, record: Record) -> None:
        """Register by hand, because pluggy's own loader stops at the first plugin that fails."""
        try:
            self.add(load(record), record.full_name)
        except RlplugError as error:
            self._fail(record.full_name, str(error))

    def add(self, plugin: object, name: str) -> None:
        """Register one object of hook implementations; a misspelt hook or argument switches it off at once."""
        try:
            self._manager.register(plugin, name=name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            self._fail(name, f"hook plugin '{name}': {' '.join(str(error).split())}")

    def _call(self, hook: str, **arguments: object) -> None:
        """Call one hook of every plugin, the later registered first, as pluggy does."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            name, plugin = implementation.plugin_name, implementation.plugin
            others = [other for other in self._manager.get_plugins() if other is not plugin]
            try:
                self._manager.subset_hook_caller(hook, others)(**arguments)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; training goes on
                self._fail(name, f"hook plugin '{name}' failed in {hook} and is off for this run: {describe(error)}")

    def _fail(self, name: str, sentence: str) -> None:
        self.failed[name] = sentence
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)
        self.report(sentence)
        self._tag()

    def _tag(self) -> None:
        if self.failed and self.tag is not None:
            self.tag({TAG: ", ".join(sorted(self.failed))})

"""Hook plugins are isolated: a failing one is reported once, switched off for the run, and tagged."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlplug_core import plugins
from rlplug_core.errors import UsageError
from rlplug_core.plugins.hook_specs import hookimpl
from rlplug_core.plugins.hooks import Hooks, hooks_for
from rlplug_core.seeds import global_state
from rlplug_core.testing.distributions import write_distribution
from rlplug_core.testing.kit.trees import difference, leaves


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    @hookimpl
    def rlplug_configure(self, config: dict[str, Any]) -> None:
        config["configured"] = True

    @hookimpl
    def rlplug_run_start(self, run: Any) -> None:
        self.calls.append(("start", run))

    @hookimpl
    def rlplug_run_log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.calls.append(("log", step, metrics))

    @hookimpl
    def rlplug_run_checkpoint(self, run: Any, path: Path, reason: str) -> None:
        self.calls.append(("checkpoint", path, reason))

    @hookimpl
    def rlplug_run_error(self, error: BaseException) -> None:
        self.calls.append(("error", error))

    @hookimpl
    def rlplug_run_end(self, run: Any, status: str) -> None:
        self.calls.append(("end", status))

    @hookimpl
    def rlplug_doctor(self, report: list[str]) -> None:
        report.append("well")


class Failing:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.count = 0

    @hookimpl
    def rlplug_run_log(self) -> None:
        self.count += 1
        raise self.error


RUN: Any = SimpleNamespace(name="r", path=Path("runs/r"), journal=Path("runs/r/journal.jsonl"), config={"options": {}})


def test_hooks_pass_the_arguments_that_a_plugin_names() -> None:
    hooks = Hooks(enabled=False)
    plugin = Recorder()
    error = ValueError()
    hooks.add(plugin, "recorder")
    options: dict[str, Any] = {}
    hooks.configure(options)
    hooks.run_start(RUN)
    hooks.run_log(RUN, 5, {"a": 1.0})
    hooks.run_checkpoint(RUN, Path("x"), "best")
    hooks.run_error(RUN, error)
    hooks.run_end(RUN, "failed")
    report: list[str] = []
    hooks.doctor(report)
    assert options == {"configured": True}
    assert report == ["well"]
    assert plugin.calls[0][1].name == RUN.name
    assert plugin.calls[1:] == [
        ("log", 5, {"a": 1.0}),
        ("checkpoint", Path("x"), "best"),
        ("error", error),
        ("end", "failed"),
    ]


def test_hooks_for_takes_objects() -> None:
    first, second = Recorder(), Recorder()
    hooks = hooks_for([first, second])
    hooks.run_log(RUN, 5, {})
    assert hooks.enabled
    assert first.calls == second.calls == [("log", 5, {})]
    assert not hooks_for(False).enabled


class Misspelt:
    @hookimpl
    def rlplug_run_lok(self) -> None: ...


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ([object()], r"hooks\[0\] \(object\) implements no hook"),
        ([Recorder], r"hooks\[0\] \(Recorder\) implements no hook; give objects, not classes"),
        ([Recorder(), Misspelt()], r"hooks\[1\] \(Misspelt\): unknown hook 'rlplug_run_lok'"),
        (Recorder(), r"hooks=\[MyHooks\(\)\]"),
    ],
)
def test_objects_without_a_hook_raise(hooks: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hooks_for(hooks)


@pytest.mark.parametrize("error", [ValueError("no\nroom"), SystemExit(3)])
def test_failing_hook_is_reported_once_and_switched_off(error: BaseException) -> None:
    reports: list[str] = []
    tags: list[Mapping[str, str]] = []
    hooks = Hooks(enabled=False, report=reports.append, tag=tags.append)
    first = Recorder()
    bad = Failing(error)
    last = Recorder()
    for name, plugin in (("first", first), ("bad", bad), ("last", last)):
        hooks.add(plugin, name)
    hooks.run_log(RUN, 1, {})
    hooks.run_log(RUN, 2, {})
    assert bad.count == 1
    assert [call[1] for call in first.calls] == [call[1] for call in last.calls] == [1, 2]
    assert len(reports) == 1
    assert "'bad' failed in rlplug_run_log and is off for this run" in reports[0]
    assert reports[0].isprintable()
    assert tags == [{"rlplug.hook_failed": "bad"}]


def test_keyboard_interrupt_is_not_swallowed() -> None:
    hooks = Hooks(enabled=False)
    hooks.add(Failing(KeyboardInterrupt()), "bad")
    with pytest.raises(KeyboardInterrupt):
        hooks.run_log(RUN, 1, {})


class WrongArgument:
    @hookimpl
    def rlplug_run_start(self, runn: Any) -> None: ...


@pytest.mark.parametrize(("plugin", "message"), [(Misspelt(), "rlplug_run_lok"), (WrongArgument(), "runn")])
def test_misspelt_hook_or_argument_switches_the_plugin_off(plugin: object, message: str) -> None:
    reports: list[str] = []
    hooks = Hooks(enabled=False, report=reports.append)
    good = Recorder()
    hooks.add(good, "good")
    hooks.add(plugin, "bad")
    assert list(hooks.failed) == ["bad"]
    assert message in reports[0]
    hooks.run_start(RUN)
    assert [call[0] for call in good.calls] == ["start"]


def test_tags_early_failure_at_the_start() -> None:
    tags: list[Mapping[str, str]] = []
    hooks = Hooks(enabled=False, report=lambda sentence: None)
    hooks.add(Misspelt(), "bad")
    hooks.tag = tags.append
    hooks.run_start(RUN)
    assert tags == [{"rlplug.hook_failed": "bad"}]


def test_installed_hooks_are_registered_unless_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = "from rlplug_core import hookimpl\n@hookimpl\ndef rlplug_configure(config): config['talk'] = 1\n"
    points = {"rlplug.hooks": {"talk": "rlplug_talk.good", "bad": "rlplug_talk.bad"}}
    files = {"rlplug_talk/__init__.py": "", "rlplug_talk/good.py": good, "rlplug_talk/bad.py": "1/0"}
    write_distribution(tmp_path, "rlplug-talk", points, files)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RLPLUG_DISABLED_PLUGINS", "mlflow")
    plugins.refresh()
    reports: list[str] = []
    options: dict[str, Any] = {}
    hooks = Hooks(report=reports.append)
    hooks.configure(options)
    monkeypatch.undo()
    plugins.refresh()
    assert json.dumps(options) == '{"talk": 1}'
    assert list(hooks.failed) == ["rlplug-talk/bad"]
    assert "ZeroDivisionError" in reports[0]
    for name in [name for name in sys.modules if name.startswith("rlplug_talk")]:
        del sys.modules[name]


def test_disabled_hooks_have_no_plugins() -> None:
    assert Hooks(enabled=False)._manager.get_plugins() == set()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_exception_without_a_message_is_reported() -> None:
    reports: list[str] = []
    hooks = Hooks(enabled=False, report=reports.append)
    hooks.add(Failing(Unprintable()), "bad")
    hooks.run_log(RUN, 1, {})
    assert "Unprintable: its message cannot be shown" in reports[0]


class Meddler:
    @hookimpl
    def rlplug_configure(self, config: dict[str, Any]) -> None:
        config.clear()
        config["gamma"] = 0.5

    @hookimpl
    def rlplug_run_log(self, run: Any, metrics: Any) -> None:
        np.random.seed(0)
        torch.manual_seed(0)
        random.random()
        run.config["options"] = None
        metrics["loss/policy"] = 0.0


def test_hook_cannot_change_generators_and_metrics() -> None:
    hooks = Hooks(enabled=False)
    reports = list[str]()
    hooks.report = reports.append
    hooks.add(Meddler(), "meddling")
    before = leaves(global_state())
    metrics = {"loss/policy": 1.0}
    hooks.run_log(RUN, 1, metrics)
    assert not difference(before, leaves(global_state()))
    assert metrics == {"loss/policy": 1.0}
    assert "does not support item assignment" in reports[0]


def test_options_that_a_hook_removes_are_restored() -> None:
    reports: list[str] = []
    hooks = Hooks(enabled=False, report=reports.append)
    hooks.add(Meddler(), "meddling")
    options: dict[str, Any] = {"seed": 3, "gamma": 0.9}
    assert hooks.configure(options) == {"gamma": "hook meddling"}
    assert options == {"gamma": 0.5, "seed": 3}
    assert reports == ["hook plugin 'meddling' removed options, which are restored: seed"]


def test_hook_writes_metrics_with_valid_names(tmp_path: Path) -> None:
    written: list[Any] = []
    hooks = Hooks(enabled=False)
    recorder = Recorder()
    hooks.write = lambda kind, data: written.append((kind, dict(data)))
    hooks.add(recorder, "recorder")
    run: Any = SimpleNamespace(name="r", path=tmp_path, journal=tmp_path / "j", config={})
    hooks.run_start(run)
    view = recorder.calls[0][1]
    view.log_metric("own/score", 3)
    (tmp_path / "plot.png").write_bytes(b"image")
    assert view.log_image("own/plot", tmp_path / "plot.png").read_bytes() == b"image"
    assert written == [
        ("metrics", {"own/score": 3.0}),
        ("image", {"name": "own/plot", "path": "images/own-plot.png"}),
    ]
    for name, value, message in (
        ("score", 1, "group/name"),
        ("eval/x", 1, "another group"),
        ("own/x", math.nan, "finite"),
    ):
        with pytest.raises(UsageError, match=message):
            view.log_metric(name, value)
    with pytest.raises(AttributeError):
        view.name = "other"

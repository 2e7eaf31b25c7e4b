"""Hook plugins: each is isolated, a failing one is reported once, switched off for the run, and tagged."""

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
        config["seen"] = True

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
        self.error, self.count = error, 0

    @hookimpl
    def rlplug_run_log(self) -> None:
        self.count += 1
        raise self.error


RUN: Any = SimpleNamespace(name="r", path=Path("runs/r"), journal=Path("runs/r/journal.jsonl"), config={"options": {}})


def test_every_hook_reaches_a_plugin_with_the_arguments_it_asks_for() -> None:
    hooks, plugin, error = Hooks(enabled=False), Recorder(), ValueError()
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
    assert options == {"seen": True}
    assert report == ["well"]
    assert plugin.calls[0][1].name == RUN.name
    assert plugin.calls[1:] == [
        ("log", 5, {"a": 1.0}),
        ("checkpoint", Path("x"), "best"),
        ("error", error),
        ("end", "failed"),
    ]


def test_objects_take_part_beside_plugins_and_nothing_else_does() -> None:
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
    ("given", "word"),
    [
        ([object()], r"hooks\[0\] \(object\) implements no hook"),
        ([Recorder], r"hooks\[0\] \(Recorder\) implements no hook; give objects, not classes"),
        ([Recorder(), Misspelt()], r"hooks\[1\] \(Misspelt\): unknown hook 'rlplug_run_lok'"),
        (Recorder(), r"hooks=\[MyHooks\(\)\]"),
    ],
)
def test_plugins_without_a_hook_are_refused(given: Any, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        hooks_for(given)


@pytest.mark.parametrize("error", [ValueError("no\nroom"), SystemExit(3)])
def test_a_failing_hook_is_reported_once_switched_off_and_tagged(error: BaseException) -> None:
    reports: list[str] = []
    tags: list[Mapping[str, str]] = []
    hooks = Hooks(enabled=False, report=reports.append, tag=tags.append)
    first, bad, last = Recorder(), Failing(error), Recorder()
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


def test_interrupting_from_the_keyboard_is_not_swallowed() -> None:
    hooks = Hooks(enabled=False)
    hooks.add(Failing(KeyboardInterrupt()), "bad")
    with pytest.raises(KeyboardInterrupt):
        hooks.run_log(RUN, 1, {})


class Misspelt:
    @hookimpl
    def rlplug_run_strat(self, run: Any) -> None: ...


class WrongArgument:
    @hookimpl
    def rlplug_run_start(self, runn: Any) -> None: ...


@pytest.mark.parametrize(("plugin", "word"), [(Misspelt(), "rlplug_run_strat"), (WrongArgument(), "runn")])
def test_a_misspelt_hook_or_argument_switches_its_plugin_off(plugin: object, word: str) -> None:
    reports: list[str] = []
    hooks, good = Hooks(enabled=False, report=reports.append), Recorder()
    hooks.add(good, "good")
    hooks.add(plugin, "bad")
    assert list(hooks.failed) == ["bad"]
    assert word in reports[0]
    hooks.run_start(RUN)
    assert [call[0] for call in good.calls] == ["start"]


def test_a_plugin_that_failed_before_the_journal_opened_is_tagged_at_the_start() -> None:
    tags: list[Mapping[str, str]] = []
    hooks = Hooks(enabled=False, report=lambda sentence: None)
    hooks.add(Misspelt(), "bad")
    hooks.tag = tags.append
    hooks.run_start(RUN)
    assert tags == [{"rlplug.hook_failed": "bad"}]


def test_installed_hooks_are_registered_and_a_broken_one_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_run_without_hooks_calls_none() -> None:
    assert Hooks(enabled=False)._manager.get_plugins() == set()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_an_exception_that_cannot_say_what_it_is_stays_inside() -> None:
    reports: list[str] = []
    hooks = Hooks(enabled=False, report=reports.append)
    hooks.add(Failing(Unspeakable()), "bad")
    hooks.run_log(RUN, 1, {})
    assert "Unspeakable: its message cannot be shown" in reports[0]


class Meddling:
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


def test_a_hook_moves_no_generator_and_changes_no_metric() -> None:
    hooks, reports = Hooks(enabled=False), list[str]()
    hooks.report = reports.append
    hooks.add(Meddling(), "meddling")
    before, metrics = leaves(global_state()), {"loss/policy": 1.0}
    hooks.run_log(RUN, 1, metrics)
    assert not difference(before, leaves(global_state()))
    assert metrics == {"loss/policy": 1.0}
    assert "does not support item assignment" in reports[0]


def test_a_hook_that_takes_options_away_is_reported_and_they_are_put_back() -> None:
    reports: list[str] = []
    hooks = Hooks(enabled=False, report=reports.append)
    hooks.add(Meddling(), "meddling")
    options: dict[str, Any] = {"seed": 3, "gamma": 0.9}
    assert hooks.configure(options) == {"gamma": "hook meddling"}
    assert options == {"gamma": 0.5, "seed": 3}
    assert reports == ["hook plugin 'meddling' removed options, which are restored: seed"]


def test_metrics_of_a_hook_are_written_and_bad_names_refused(tmp_path: Path) -> None:
    written: list[Any] = []
    hooks, seen = Hooks(enabled=False), Recorder()
    hooks.write = lambda kind, data: written.append((kind, dict(data)))
    hooks.add(seen, "seen")
    run: Any = SimpleNamespace(name="r", path=tmp_path, journal=tmp_path / "j", config={})
    hooks.run_start(run)
    view = seen.calls[0][1]
    view.log_metric("own/score", 3)
    (tmp_path / "plot.png").write_bytes(b"image")
    assert view.log_image("own/plot", tmp_path / "plot.png").read_bytes() == b"image"
    assert written == [
        ("metrics", {"own/score": 3.0}),
        ("image", {"name": "own/plot", "path": "images/own-plot.png"}),
    ]
    for name, value, said in (
        ("score", 1, "group/name"),
        ("eval/x", 1, "another group"),
        ("own/x", math.nan, "finite"),
    ):
        with pytest.raises(UsageError, match=said):
            view.log_metric(name, value)
    with pytest.raises(AttributeError):
        view.name = "other"

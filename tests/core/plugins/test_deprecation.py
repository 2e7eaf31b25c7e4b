"""A deprecated hook or argument warns at its implementation; other plugins get no warning.

The contract (`docs/plugins/contract.md`) promises it; nothing is deprecated yet, so the tests deprecate something.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from rlplug_core.plugins import hook_specs as hooks
from rlplug_core.plugins.hook_specs import hookimpl, hookspec
from rlplug_core.plugins.hooks import Hooks

RUN: Any = SimpleNamespace(name="r", path=Path("r"), journal=Path("r/journal.jsonl"), config={})
OLD_HOOK = DeprecationWarning("rlplug_run_error is deprecated; rlplug_run_end gets the status")
OLD_ARGUMENT = DeprecationWarning("'step' of rlplug_run_log is deprecated; metrics hold it")


@pytest.fixture(autouse=True)
def _deprecate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deprecate a hook and an argument of another hook."""
    for name, arguments in (
        ("rlplug_run_error", {"warn_on_impl": OLD_HOOK}),
        ("rlplug_run_log", {"warn_on_impl_args": {"step": OLD_ARGUMENT}}),
    ):
        original: Any = getattr(hooks, name)
        copy = FunctionType(original.__code__, original.__globals__, name)
        monkeypatch.setattr(hooks, name, hookspec(**arguments)(copy))  # type: ignore[call-overload]


class New:
    """Implements both without deprecated parts."""

    @hookimpl
    def rlplug_run_log(self, metrics: Mapping[str, float]) -> None: ...

    @hookimpl
    def rlplug_run_end(self, status: str) -> None: ...


class OldArgument:
    called: Any = None

    @hookimpl
    def rlplug_run_log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.called = step


class OldHook:
    @hookimpl
    def rlplug_run_error(self) -> None: ...


@pytest.mark.parametrize(("plugin", "warning"), [(OldArgument, OLD_ARGUMENT), (OldHook, OLD_HOOK)])
def test_deprecated_hooks_warn_at_their_implementation(plugin: type[Any], warning: Warning) -> None:
    with pytest.warns(DeprecationWarning, match="is deprecated") as caught:
        Hooks(enabled=False).add(plugin(), "old")
    assert [str(each.message) for each in caught] == [str(warning)]
    assert caught[0].filename == __file__


def test_other_plugins_get_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager = Hooks(enabled=False)
        manager.add(New(), "new")
        manager.run_log(RUN, 3, {})
    assert manager.failed == {}


def test_deprecated_hooks_still_work_and_warn_once() -> None:
    manager = Hooks(enabled=False)
    plugin = OldArgument()
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        manager.add(plugin, "old")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager.run_log(RUN, 3, {})
    assert plugin.called == 3
    assert manager.failed == {}

"""Calls the hook plugins of a run, each isolated: a failing one is reported once, switched off, and tagged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pluggy

from rlplug_core.config.import_string import describe, is_target
from rlplug_core.errors import RlplugError, UsageError, plain, warn
from rlplug_core.plugins import hook_specs as specifications
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.hook_specs import RunView
from rlplug_core.plugins.hook_view import HookView, Write
from rlplug_core.plugins.names import usable
from rlplug_core.plugins.spec import PartSpec, split

TAG = "rlplug.hook_failed"
#: The exceptions of pluggy for an unknown hook, an unknown argument, and a name that is used twice.
BAD_HOOKS = (pluggy.PluginValidationError, ValueError)


class Hooks:
    """The enabled hook plugins of one run.

    Args:
        enabled: whether the hooks of plugins and loggers are called.
        report: takes one sentence per plugin that failed.
        tag: writes tags into the run's journal; may be set later, before `run_start`.
        options: options of installed hook plugins, each as `NAME:option=value,…`.

    Raises:
        UsageError: options name an unknown plugin, or one twice. BadConfig: an option is wrong. PluginError: the plugin
            with these options cannot be used.
    """

    def __init__(
        self,
        enabled: bool = True,
        report: Callable[[str], None] = warn,
        tag: Callable[[Mapping[str, str]], object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.report = report
        self.tag = tag
        #: Writes records into the run's journal; set before `run_start`.
        self.write: Write = lambda kind, data: None
        #: Failures by plugin name.
        self.failed: dict[str, str] = {}
        #: Whether a hook failed while it was called.
        self.incomplete = False
        self.enabled = enabled
        self._manager = pluggy.PluginManager(specifications.PROJECT)
        self._manager.add_hookspecs(specifications)
        configured = _configure_plugins(options) if enabled else {}
        for record in records() if enabled else ():
            if record.full_name in configured and record.group == "hooks":
                self.add(configured[record.full_name], record.full_name)
            elif record.group == "hooks" and record.status in ("ok", "shadowed"):
                # By hand, because pluggy's own loader stops at the first plugin that fails.
                try:
                    self.add(PartSpec.parse("hook", record.full_name).build(), record.full_name)
                except RlplugError as error:
                    self._fail(record.full_name, str(error))

    def add_loggers(self, loggers: Iterable[str]) -> None:
        """Register loggers, each `NAME` or `NAME:option=value,…`, unless hooks are off.

        Raises:
            UsageError: no logger has this name, or a file's logger has no hooks. BadConfig: an option is wrong.
                PluginError: it cannot be used; `MissingPackage` names the missing package.
        """
        for words in loggers if self.enabled else ():
            name, _ = split(words)
            hooks = PartSpec.parse("logger", words).build()
            if is_target(name):
                self._add_checked(hooks, f"logger '{words}'")
            else:
                self.add(hooks, usable("loggers", name).full_name)

    def add_objects(self, objects: Sequence[object]) -> None:
        """Register the caller's objects as hooks; messages name them by their numbers and classes.

        Raises:
            UsageError: one of them implements no hook, or an unknown one.
        """
        for number, plugin in enumerate(objects):
            name = f"hooks[{number}] ({getattr(plugin, '__name__', type(plugin).__name__)})"
            self._add_checked(plugin, name, "objects, not classes, with ")

    def _add_checked(
        self,
        plugin: object,
        name: str,
        prefix: str = "it ",
    ) -> None:
        """Register a user's hooks; unlike a plugin, they are refused without a hook or with a wrong one.

        `prefix` is the part of the message before "methods".
        """
        try:
            self._register(plugin, name)
        except BAD_HOOKS as error:
            raise UsageError(f"{name}: {plain(str(error), 300)}") from error
        if isinstance(plugin, type) or not self._manager.get_hookcallers(plugin):
            raise UsageError(
                f"{name} implements no hook; give {prefix}methods such as rlplug_run_log that are marked "
                "@rlplug_core.hookimpl"
            )

    def configure(self, options: dict[str, object]) -> dict[str, str]:
        """Let plugins set options, and return the origin of each change; restore removed options, with a warning."""
        origins: dict[str, str] = {}
        for name, call in self._calls("rlplug_configure"):
            before = deepcopy(options)
            self._guard(name, "rlplug_configure", partial(call, config=options))
            if removed := sorted(before.keys() - options.keys()):
                self.report(
                    f"hook plugin '{name}' removed options, which are restored: {', '.join(removed)}"
                )
                options.update({key: before[key] for key in removed})
            changed = [key for key in options if key not in before or options[key] != before[key]]
            origins |= dict.fromkeys(changed, f"hook {name}")
        return origins

    def run_start(self, run: RunView) -> None:
        self._tag()
        self._call("rlplug_run_start", run)

    def run_log(
        self,
        run: RunView,
        step: int,
        metrics: Mapping[str, float],
    ) -> None:
        frozen = MappingProxyType(dict(metrics))
        self._call("rlplug_run_log", run, step=step, metrics=frozen)

    def episodes(
        self,
        run: RunView,
        step: int,
        episodes: Mapping[str, Sequence[float | None]],
    ) -> None:
        columns = {
            name: tuple(math.nan if value is None else value for value in column)
            for name, column in episodes.items()
        }
        frozen = MappingProxyType(columns)
        self._call("rlplug_episodes", run, step=step, episodes=frozen)

    def evaluation(
        self,
        run: RunView,
        step: int,
        returns: Sequence[float],
        lengths: Sequence[int],
    ) -> None:
        evaluation = {"returns": tuple(returns), "lengths": tuple(lengths)}
        self._call("rlplug_evaluation", run, step=step, **evaluation)

    def run_checkpoint(self, run: RunView, path: Path, reason: str) -> None:
        self._call("rlplug_run_checkpoint", run, path=path, reason=reason)

    def run_end(self, run: RunView, status: str) -> None:
        self._call("rlplug_run_end", run, status=status)

    def run_error(self, run: RunView, error: BaseException) -> None:
        self._call("rlplug_run_error", run, error=error)

    def doctor(self, report: list[str]) -> None:
        for name, call in self._calls("rlplug_doctor"):
            self._isolate(name, "rlplug_doctor", partial(call, report=report))

    def add(self, plugin: object, name: str) -> None:
        """Register one object of hook implementations; a misspelt hook or argument switches it off at once."""
        try:
            self._register(plugin, name)
        except BAD_HOOKS as error:
            self._fail(name, f"hook plugin '{name}': {plain(str(error), 300)}")

    def _register(self, plugin: object, name: str) -> None:
        self._manager.register(plugin, name=name)
        self._manager.check_pending()

    def _call(self, hook: str, run: RunView, **arguments: object) -> None:
        """Call one hook of every plugin, the later registered first, as pluggy does."""
        view = HookView(run.name, run.path, run.journal, run, self.write)
        for name, call in self._calls(hook):
            self._guard(name, hook, partial(call, run=view, **arguments))

    def _calls(self, hook: str) -> Iterator[tuple[str, Callable[..., object]]]:
        """Yield the plugins that implement a hook, each with a function that calls only its hook."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            plugin = implementation.plugin
            excluded = [
                candidate for candidate in self._manager.get_plugins() if candidate is not plugin
            ]
            yield implementation.plugin_name, self._manager.subset_hook_caller(hook, excluded)

    def _guard(self, name: str, hook: str, call: Callable[[], object]) -> None:
        """Call a hook of one plugin and restore the state of the process's random generators."""
        from rlplug_core.seeds import (
            preserve_generators,  # needs torch, which every run has loaded and the doctor has not
        )

        with preserve_generators():
            self._isolate(name, hook, call)

    def _isolate(
        self,
        name: str,
        hook: str,
        call: Callable[[], object],
    ) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; training continues
            self.incomplete = True
            self._fail(
                name,
                f"hook plugin '{name}' failed in {hook} and is off for this run: {describe(error)}",
            )

    def _fail(self, name: str, sentence: str) -> None:
        self.failed[name] = sentence
        if self._manager.has_plugin(name):
            self._manager.unregister(name=name)
        self.report(sentence)
        self._tag()

    def _tag(self) -> None:
        if self.failed and self.tag is not None:
            self.tag({TAG: ", ".join(sorted(self.failed))})


def _configure_plugins(options: Iterable[str]) -> dict[str, object]:
    """Return the hooks of the plugins that options name, by the full name of the plugin."""
    configured: dict[str, object] = {}
    for words in options:
        hooks = PartSpec.parse("hook", words).build()
        full_name = usable("hooks", split(words)[0]).full_name
        if full_name in configured:
            raise UsageError(
                f"--hook names {full_name} twice; write all its options after one name"
            )
        configured[full_name] = hooks
    return configured


def hooks_for(
    requested: bool | Sequence[object],
    options: Sequence[str] = (),
) -> Hooks:
    """Return the hooks of a run: of all plugins for True, none for False, of all plugins and the objects for a list.

    Args:
        options: options of installed hook plugins, each as `NAME:option=value,…`.

    Raises:
        UsageError: it is something else, or an object implements no hook; and as `Hooks` does.
    """
    if isinstance(requested, bool):
        return Hooks(requested, options=options)
    if not isinstance(requested, list | tuple):
        raise UsageError(
            f"hooks is {requested!r}; give True, False, or a list of objects with hooks: hooks=[MyHooks()]"
        )
    hooks = Hooks(options=options)
    hooks.add_objects(requested)
    return hooks

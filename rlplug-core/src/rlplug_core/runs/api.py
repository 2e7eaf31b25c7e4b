"""The functions for users: `train` trains a run, `resume` continues it, `load` loads its policy.

From Python:

    run = train("a3c", "CartPole-v1")
    print(run.evaluate().mean)
    policy = load(run)
    action = policy(observation)

`preset` returns the options of a preset as an object that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlplug_core.config.files import keep_directory
from rlplug_core.config.import_path import import_path
from rlplug_core.config.numbers import plain_number
from rlplug_core.config.schema import flat
from rlplug_core.errors import UsageError
from rlplug_core.loop.env_timing import choose_env_workers
from rlplug_core.loop.learner_checks import check_dropped, check_ignored
from rlplug_core.loop.notices import notice
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.safe_streams import safe_streams
from rlplug_core.loop.signals import no_exit
from rlplug_core.loop.torch_settings import torch_defaults
from rlplug_core.plugins import Hooks, absolute
from rlplug_core.plugins.env_source import source_of
from rlplug_core.plugins.hooks import hooks_for
from rlplug_core.plugins.request import RunRequest
from rlplug_core.runs.data import with_dataset
from rlplug_core.runs.messages import remarks, survey
from rlplug_core.runs.network_text import network_text
from rlplug_core.runs.new_run import (
    check_plan,
    create_run,
    describe_run,
    initial_buffer,
    with_checkpoints,
    with_start,
)
from rlplug_core.runs.policy import Policy
from rlplug_core.runs.python_hints import add_python_notes
from rlplug_core.runs.resuming import resume_from_checkpoint
from rlplug_core.runs.run import Run, open_run, plan_of
from rlplug_core.runs.session import Session, Watch

__all__ = [
    "Preset",
    "Run",
    "load",
    "open_run",
    "plan_of",
    "preset",
    "resume",
    "start",
    "train",
]


@add_python_notes()
@safe_streams()
@torch_defaults()
def train(
    algorithm: str | type[object],
    env: object,
    options: Mapping[str, object] | None = None,
    *,
    out: Path | str = "runs",
    name: str | None = None,
    origins: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    hooks: bool | Sequence[object] = True,
    say: Callable[[str], None] | None = None,
    until: int | None = None,
) -> Run:
    """Train `algorithm` on `env` and return the finished run.

    Args:
        algorithm: an id from `rlplug list`, `module:Class`, `./file.py:Class`, or the class itself.
        env: an environment id, `module:Name` or `./file.py:Name`; or a class, a function or an object. An
            object or a lambda cannot be imported by name: pass it again to `resume`, `open_run` and `load`.
        options: run options (`RunOptions`) and options of the algorithm, by dotted name, and under `env` keyword
            arguments of the environment; presets set the rest.
        out: the folder of run directories; `name` is the directory's name.
        origins: the origin of each option, if the caller resolved presets already.
        watch: called several times a second with the run's `Progress`.
        hooks: whether hook plugins, such as MLflow's, are called; a list adds the hooks of its objects.
        say: called at the start with each message: about an environment without a preset, about the layers of the
            networks, and about options that look like a mistake.
        until: pause at this env step with a checkpoint; `resume` continues bit for bit.

    Raises:
        UsageError, PluginError: the run cannot start. Usually nothing was written. A run directory exists if the error
            shows only with all environments together, as with a replay buffer that is too small for their number.
        Interrupted, RlplugError: the run stopped or failed; its records stay.
    """
    algorithm_name = absolute(_importable_name(algorithm))
    source = source_of(env)
    if not isinstance(options, Mapping | None):
        raise UsageError(
            f"options is {options!r}; give a dictionary of them, such as {{'total_timesteps': 20_000}}"
        )
    values: dict[str, Any] = dict(options or {})
    if isinstance(values.get("init"), Run):
        values["init"] = values["init"].path
    request = RunRequest.make(algorithm_name, source, values, origins)
    if origins is None:
        request = request.with_presets()
    until = _steps("until", until)
    return start(request, out=Path(out), name=name, watch=watch, hooks=hooks, say=say, until=until)


@torch_defaults()
def start(
    request: RunRequest,
    *,
    out: Path,
    name: str | None = None,
    watch: Watch | None = None,
    hooks: bool | Sequence[object] = True,
    say: Callable[[str], None] | None = None,
    until: int | None = None,
) -> Run:
    """Train the run of a request; arguments, errors and the finished run are those of `train`."""
    values = dict(request.values)
    hook_plugins = hooks_for(hooks, values.get("hook") or ())
    origins = {**request.origins, **hook_plugins.configure(values)}
    request = replace(request, values=values, origins=origins)
    reason = f"making and trying {request.source.name}; training starts after that"
    with no_exit("before it trained"), keep_directory(), notice(reason):
        plan, warm = with_start(with_dataset(Plan.of(request)))
        check_ignored(plan.learner, plan.config, request.set_by_user)
        hook_plugins.add_loggers(plan.options.log)
        plan, timing_text = choose_env_workers(plan)
        learner, memory_text = check_plan(plan)
        check_dropped(learner, request.set_by_user)
        buffer = initial_buffer(warm, learner, plan)
        plan, disk_text = with_checkpoints(plan, learner)
        if say is not None:
            messages = (*remarks(plan, origins), timing_text, disk_text, memory_text)
            messages += (survey(plan), network_text(learner))
            for message in filter(None, messages):
                say(message)
    run = create_run(plan, out, name)
    with run.directory.locked():
        describe_run(run, plan, origins)
        Session(plan, run.directory, run, hook_plugins, watch, until=until).train(buffer=buffer)
    return run


def _importable_name(algorithm: str | type[object]) -> str:
    """Return the name of an algorithm for the record: its import path, if it has one.

    Raises:
        UsageError: it is neither a name nor a class.
    """
    if isinstance(algorithm, str):
        return algorithm
    if not isinstance(algorithm, type):
        raise UsageError(
            f"algorithm is {algorithm!r}; give an id such as 'ppo', 'module:Class', or a class"
        )
    name, unnamed = import_path(algorithm)
    return f"{algorithm.__module__}:{algorithm.__qualname__}" if unnamed else name


@add_python_notes("total_timesteps", "rescale", "on", "until")
@safe_streams()
@torch_defaults()
def resume(
    run: Path | str | Run,
    *,
    env: object = None,
    total_timesteps: int | None = None,
    rescale: bool = False,
    watch: Watch | None = None,
    hooks: bool | Sequence[object] = True,
    trust: bool = False,
    on: str | None = None,
    until: int | None = None,
) -> Run:
    """Continue an interrupted run from its newest readable checkpoint, as if it had never stopped, bit for bit.

    A run that was killed before its first checkpoint starts again in its own directory. A run that was killed after its
    final checkpoint plays its final evaluation, and a run that was killed after its end calls its hooks again.

    Args:
        run: a path, a run's name in `runs/`, or a `Run`.
        env: the environment, if it cannot be imported by name or if it has moved.
        total_timesteps: the new end.
        rescale: whether schedules end at the new total instead of the old one.
        trust: whether to execute code that came with the run and that another account wrote.
        on: the new value of the option `on`, the place of the actors.
        until: pause at this env step with a checkpoint; `watch` and `hooks` are as for `train`.

    Raises:
        Untrusted: such code came with the run, and `trust` is False.
        UsageError: the run does not exist or is running, its environment cannot be imported by name, or it is finished
            and `total_timesteps` is not larger.
        BadCheckpoint: no checkpoint can be read.
    """
    total_timesteps = _steps("total_timesteps", total_timesteps)
    until = _steps("until", until)
    run = open_run(run, env=env, trust=trust)
    if run.directory.is_export:
        raise UsageError(
            f"{run.path} is an exported policy, which cannot be resumed; start a run with its weights: "
            "rlplug run ALGO ENV --init-parts policy --init …"
        )
    with run.directory.locked():  # before anything is read, because another process may write it
        plan = plan_of(run)
        if on is not None:
            plan = replace(plan, options=replace(plan.options, on=on))
            plan.check()
        resume_from_checkpoint(
            run,
            with_dataset(plan, run.config.get("dataset"), run.path),
            total_timesteps,
            rescale,
            lambda plan: Session(plan, run.directory, run, _hooks(plan, hooks), watch, until=until),
        )
    return run


def _steps(name: str, value: object) -> int | None:
    """Return the value of the argument `name` as a number of env steps; it may be 1e6 or a NumPy number.

    Raises:
        UsageError: it is not a whole number above 0.
    """
    steps = plain_number(value, "int")
    if steps is None or (type(steps) is int and 0 < steps < 2**63):
        return steps
    raise UsageError(f"{name} is {value!r}; give a whole number of env steps, 1 or more")


def _hooks(plan: Plan, requested: bool | Sequence[object]) -> Hooks:
    """Return the hooks of a resumed run, with the loggers of its options."""
    hooks = hooks_for(requested, plan.options.hook)
    hooks.add_loggers(plan.options.log)
    return hooks


@add_python_notes()
@torch_defaults()
def load(
    run: Path | str | Run,
    checkpoint: str = "best",
    deterministic: bool = True,
    env: object = None,
    trust: bool = False,
) -> Policy:
    """Return the policy of a run or an export: `policy(observation)` returns an action.

    Args:
        run: a path, a run's name in `runs/`, or a source of a shared agent such as `hub:owner/name`.
        checkpoint: `best`, `final`, `latest` or a checkpoint's name; an export has only one policy.
        deterministic: whether it acts greedily; else it explores as in training at the checkpoint's step.
        env: the environment, if it cannot be imported by name or if it has moved.
        trust: whether to execute code that came with the run and that another account wrote.

    Raises:
        UsageError: the run or the checkpoint does not exist, or its environment cannot be imported by name.
        Untrusted: such code came with the run, and `trust` is False.
    """
    return open_run(run, env=env, trust=trust).policy(checkpoint, deterministic)


@dataclass(frozen=True)
class Preset:
    """An algorithm, an environment and options, which you can read, change and train.

    Attributes:
        algorithm: an id, `module:Class` or `./file.py:Class`.
        env: the environment, in a form that `train` takes.
        options: values by dotted name: those of the preset and the given ones. Other options have their defaults.
        origins: the origin of each option, `preset` or `option`.
    """

    algorithm: str
    env: object
    options: Mapping[str, object]
    origins: Mapping[str, str]

    def with_options(self, options: Mapping[str, object]) -> Preset:
        """Return a preset in which these options override the current ones.

        Args:
            options: by dotted name, or nested as in `{"net": {"hidden": [64, 64]}}`.
        """
        explicit = {
            name: self.options[name] for name in self.options if self.origins[name] != "preset"
        }
        return preset(self.algorithm, self.env, {**explicit, **flat(options)})

    def train(self, **arguments: Any) -> Run:
        """Train it and return the finished run; `arguments` are the keyword arguments of `train`."""
        return train(self.algorithm, self.env, self.options, origins=self.origins, **arguments)


@add_python_notes()
def preset(
    algorithm: str | type[object],
    env: object,
    options: Mapping[str, object] | None = None,
) -> Preset:
    """Return the preset of an algorithm for an environment; `options` override it.

    Args:
        algorithm: as for `train`.
        env: as for `train`. If no preset names the environment, the preset for its kind (`pixels`, `continuous`,
            `discrete`, `multi-agent`) applies; to find the kind, one environment is made and closed.
        options: by dotted name or nested.

    Raises:
        UsageError, PluginError: the algorithm or the environment does not exist.
    """
    algorithm_name = absolute(_importable_name(algorithm))
    request = RunRequest.make(algorithm_name, env, options or {}).with_presets()
    return Preset(algorithm_name, env, dict(request.values), dict(request.origins))

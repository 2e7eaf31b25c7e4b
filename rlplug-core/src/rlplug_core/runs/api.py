"""The functions for users: `train` a run, `resume` it, `load` its policy; `opened` is about what there is then.

From Python:

    run = train("a3c", "CartPole-v1")
    print(run.evaluate().mean)
    policy = load(run)
    action = policy(observation)
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlplug_core.algorithm import Algorithm
from rlplug_core.config.import_path import import_path
from rlplug_core.config.numbers import plain
from rlplug_core.errors import UsageError, warn
from rlplug_core.loop.build import fillable
from rlplug_core.loop.env_timing import choose_env_workers
from rlplug_core.loop.learner_checks import check_ignored, check_optimized
from rlplug_core.loop.learner_data import fit_dataset, gets_dataset
from rlplug_core.loop.memory_check import checkpoints_to_keep
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.torch_settings import torch_defaults
from rlplug_core.plugins import Hooks, absolute
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.env_source import source_of
from rlplug_core.plugins.hooks import hooks_for
from rlplug_core.plugins.request import RunRequest
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.runs.checkpoint import Checkpoints, Saved
from rlplug_core.runs.data import unlike, with_dataset
from rlplug_core.runs.directory import RunDirectory, group_of
from rlplug_core.runs.files import shell_word
from rlplug_core.runs.journal import read
from rlplug_core.runs.messages import apart, remarks, scale_warning, survey
from rlplug_core.runs.network_text import network_text
from rlplug_core.runs.policy import Policy
from rlplug_core.runs.python_hints import add_python_notes
from rlplug_core.runs.reproducibility import differences, environment, writers
from rlplug_core.runs.run import Run, open_run, plan_of
from rlplug_core.runs.session import Point, Session, Watch
from rlplug_core.runs.sources import identities, keep
from rlplug_core.runs.trust import add_seal
from rlplug_core.runs.warm_start import WarmStart

__all__ = ["Run", "load", "open_run", "plan_of", "resume", "train"]


@add_python_notes()
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
) -> Run:
    """Train `algorithm` on `env` and return the finished run.

    Args:
        algorithm: an id from `rlplug list`, `module:Class`, `./file.py:Class`, or the class itself.
        env: an environment id, `module:Name` or `./file.py:Name`; or a class, a function or an object. One that no name
            rebuilds, such as an object or a lambda, is passed again to `resume`, `open_run` and `load`.
        options: run options (`options.RunOptions`), the algorithm's own, by dotted name, and under `env` keyword
            arguments for the environment; presets fill the rest.
        out: the folder of run directories; `name` is the directory's name.
        origins: the origin of each option, if the caller resolved presets already.
        watch: called several times a second with the run's `Progress`.
        hooks: whether hook plugins (such as MLflow's) take part; objects with hooks in a list take part too.
        say: called at the start with a summary of an environment without a preset, with the layers of the networks,
            and with options that look like a mistake.

    Raises:
        UsageError, PluginError: it cannot be started; nothing was written, unless only the environments all
            together showed it, as of a replay too small for so many.
        Interrupted, RlplugError: it stopped or failed; its records stay.
    """
    word = absolute(_word(algorithm))
    source = source_of(env)
    if not isinstance(options, Mapping | None):
        raise UsageError(
            f"options is {options!r}; give a dictionary of them, such as {{'total_timesteps': 20_000}}"
        )
    given: dict[str, Any] = dict(options or {})
    if isinstance(given.get("init"), Run):
        given["init"] = given["init"].path
    request = RunRequest.make(word, source, given, origins)
    if origins is None:
        request = request.with_presets()
    return start(request, out=Path(out), name=name, watch=watch, hooks=hooks, say=say)


@torch_defaults()
def start(
    request: RunRequest,
    *,
    out: Path,
    name: str | None = None,
    watch: Watch | None = None,
    hooks: bool | Sequence[object] = True,
    say: Callable[[str], None] | None = None,
) -> Run:
    """Train the run of a request; arguments, errors and the finished run are those of `train`."""
    called = hooks_for(hooks)
    values = dict(request.values)
    set_by_hooks = called.configure(values)
    request = replace(request, values=values, origins={**request.origins, **set_by_hooks})
    plan, warm = _begun(with_dataset(Plan.of(request)))
    check_ignored(plan.learner, plan.config, request.set_by_user)
    called.choose(plan.options.log)
    plan, timing = choose_env_workers(plan)
    learner = _probe(plan)
    buffer = _fitting(warm, learner, plan)
    plan, disk = _with_checkpoints(plan, learner)
    if isinstance(learner, Algorithm) and (warning := scale_warning(plan, learner.spec)):
        warn(warning)
    if say is not None:
        messages = (
            *remarks(plan, request.origins),
            timing,
            disk,
            survey(plan),
            network_text(learner),
        )
        for found in filter(None, messages):
            say(found)
    run = _create(plan, out, name)
    with run.directory.locked():
        _describe(run, plan, request.origins)
        Session(plan, run.directory, run, called, watch).train(buffer=buffer)
    return run


def _with_checkpoints(plan: Plan, learner: AnyLearner) -> tuple[Plan, str]:
    """Return the plan with a number of checkpoints to keep, and a sentence about their size if it is large."""
    if not isinstance(learner, Algorithm):  # its observations are not known
        return plan, ""
    count, disk = checkpoints_to_keep(plan.flat, learner.spec.obs)
    return replace(plan, options=replace(plan.options, keep_checkpoints=count)), disk


def _word(algorithm: str | type[object]) -> str:
    """Return the recorded name of an algorithm: one that other processes import, if there is one.

    Raises:
        UsageError: it is neither a name nor a class.
    """
    if isinstance(algorithm, str):
        return algorithm
    if not isinstance(algorithm, type):
        raise UsageError(
            f"algorithm is {algorithm!r}; give an id such as 'ppo', 'module:Class', or a class itself"
        )
    name, unnamed = import_path(algorithm)
    return f"{algorithm.__module__}:{algorithm.__qualname__}" if unnamed else name


def probe(request: RunRequest) -> None:
    """Refuse a request that would not start; data sets and other runs are not read.

    Raises:
        UsageError, PluginError: it would not.
    """
    _probe(Plan.of(request))


def _probe(plan: Plan) -> AnyLearner:
    """Refuse what cannot be made, before anything is written; returns the learner that it made.

    Raises:
        UsageError: the environment for evaluations has other spaces, or the runner would not train all parameters.
    """
    with closing(plan.make_env(1)) as env:
        learner = _fitting_learner(plan, env)
    if (
        plan.eval_source is plan.source
        and plan.eval_wrappings is None
        and not plan.source.is_object
    ):
        return learner
    other = plan.make_eval_env(1)
    other.close()
    if found := apart(other.spec, env.spec):
        raise UsageError(
            f"evaluations in {other.spec.id} do not fit training in {env.spec.id}: {found}; name one with the same "
            "spaces"
        )
    return learner


def _fitting_learner(plan: Plan, env: Env) -> AnyLearner:
    """Return a learner for the environment, if runner, wrappers and data fit both."""
    if plan.options.offline and complete(env).learned():
        raise UsageError(
            "a wrapper learns from environment steps, which an offline run has none of; leave it out"
        )
    if plan.runner != "sync" and complete(env).learned():
        raise UsageError(
            f"a wrapper learns as it goes, and each worker's would learn apart; use --runner sync with {plan.env}"
        )
    learner = plan.make_learner(env.spec)
    check_optimized(learner, plan.runner, plan.options.learners)
    if plan.dataset is not None:
        if plan.options.offline or not gets_dataset(plan.learner):
            fillable(plan, learner.buffer())
        fit_dataset(plan.dataset, env)
        for sentence in unlike(plan.dataset, plan.env):
            warn(sentence)
    return learner


def _begun(plan: Plan) -> tuple[Plan, WarmStart | None]:
    """Return the plan with the run or export that it starts from, if one is named, under an absolute path."""
    if not plan.options.init:
        return plan, None
    warm = WarmStart.of(plan.options.init, plan.options.init_parts)
    if "buffer" in warm.parts and (plan.runner != "sync" or plan.options.dataset):
        raise UsageError("--init-parts buffer goes with --runner sync alone, and without --dataset")
    warm.warn_of_wrappers()
    return replace(plan, options=replace(plan.options, init=str(warm.path)), start=warm), warm


def _fitting(warm: WarmStart | None, learner: AnyLearner, plan: Plan) -> Mapping[str, Any] | None:
    """Return the buffer state that a run starts from, if it takes one over; it fits a learner of this run."""
    buffer = warm.buffer() if warm else None
    if warm and buffer is not None:
        warm.check(buffer, learner.buffer().state_dict(), plan.options.num_envs)
    return buffer


def _create(plan: Plan, out: Path, name: str | None) -> Run:
    """A new run directory in `out`, locked."""
    short = plan.algorithm.rpartition(":")[2].rpartition("/")[2].lower()
    stem = f"{short}-{plan.env.rpartition(':')[2]}-s{plan.options.seed}"
    return Run(RunDirectory.create(out, name, stem), plan.source if plan.source.unnamed else None)


def _describe(run: Run, plan: Plan, origins: Mapping[str, str]) -> None:
    """Write a new run's `config.json`, and copies of the user's files."""
    env = plan.env
    unnamed = {"unnamed": plan.source.unnamed} if plan.source.unnamed else {}
    data = {"dataset": plan.dataset.described} if plan.dataset else {}
    compared = {**plan.flat, "dataset": plan.dataset.sha256} if plan.dataset else plan.flat
    run.directory.write_config(
        add_seal(
            keep(
                run.path,
                {
                    "name": run.name,
                    "uid": uuid.uuid4().hex,
                    "group": group_of(*identities(plan.algorithm, env, compared, plan.targets)),
                    "algorithm": plan.algorithm,
                    "env": env,
                    **unnamed,
                    **data,
                    "options": plan.flat,
                    "origins": {key: origins.get(key, "default") for key in plan.flat},
                    "environment": environment(plan),
                    "created": time.time(),
                },
                plan.targets,
            )
        )
    )


@add_python_notes("total_timesteps", "rescale", "on")
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
) -> Run:
    """Go on with an interrupted run from its newest readable checkpoint; same bits as if it had never stopped.

    A run that was killed before its first checkpoint starts again in its own directory; of one that was killed after
    its last, the final evaluation is made up for; of one that was killed after its end, the hooks are called again.

    Args:
        env: the environment, if no name rebuilds it or if it has moved.
        total_timesteps: the new end; schedules keep the old total unless `rescale`.
        trust: whether to execute code that came with the run although this account has not written it.
        on: the machines of the actors from now on, as in the option `on`.

    Raises:
        Untrusted: there is such code.
        UsageError: the run does not exist, it is running, no name rebuilds its environment, or it is finished and no
            larger `total_timesteps` is given.
        BadCheckpoint: no checkpoint can be read.
    """
    total_timesteps = _total(total_timesteps)
    run = open_run(run, env=env, trust=trust)
    with run.directory.locked():  # before anything is read, since another process may be at it
        _resume(
            run,
            with_dataset(_place_actors(plan_of(run), on), run.config.get("dataset"), run.path),
            total_timesteps,
            rescale,
            lambda plan: Session(plan, run.directory, run, _hooks(plan, hooks), watch),
        )
    return run


def _total(given: object) -> int | None:
    """The number of env steps that was given, 1e6 and numbers of numpy's among them.

    Raises:
        UsageError: it is none.
    """
    found = plain(given, "int")
    if found is None or (type(found) is int and 0 < found < 2**63):
        return found
    raise UsageError(f"total_timesteps is {given!r}; give a whole number of env steps, 1 or more")


def _hooks(plan: Plan, given: bool | Sequence[object]) -> Hooks:
    """Return the hooks of a resumed run, with the loggers that it was started with."""
    hooks = hooks_for(given)
    hooks.choose(plan.options.log)
    return hooks


def _place_actors(plan: Plan, on: str | None) -> Plan:
    """The plan with its actors elsewhere, if somewhere is named."""
    if on is not None:
        plan = replace(plan, options=replace(plan.options, on=on))
        plan.check()
    return plan


def _resume(
    run: Run,
    plan: Plan,
    total_timesteps: int | None,
    rescale: bool,
    session: Callable[[Plan], Session],
) -> None:
    status = run.directory.left()
    checkpoints = Checkpoints(run.directory.checkpoints_path)
    if not checkpoints.kept("final", "step"):
        _check_none_gone(run, status)
        total_timesteps, rescale = _goal(run, {}, total_timesteps, rescale)
        plan, warm = _begun(plan)
        session(plan).train(None, total_timesteps, rescale, buffer=warm.buffer() if warm else None)
        return
    saved, components, manifest, warnings = checkpoints.load(("final", "step"))
    for warning in warnings:
        warn(f"{warning}; falling back to {saved.path.name}")
    if total_timesteps is not None and saved.kind != "final" and total_timesteps <= saved.step:
        raise UsageError(
            f"run {run.name} is at step {saved.step:,} and would end at {total_timesteps:,}; --total-timesteps counts "
            "all its steps, those before the stop included: give more, or leave it out to reach what the run began with"
        )
    if status != "finished":
        total_timesteps, rescale = _goal(run, manifest, total_timesteps, rescale)
    limit = total_timesteps or components["clock"]["limit"]
    if rescale:
        total_timesteps = limit  # recorded, so that a reproduction of the run rescales there too
    if saved.kind == "final" and (total_timesteps is None or saved.step >= limit):
        if status == "finished":
            if run.directory.hooks_pending:
                session(plan).call_hooks_again()
                return
            raise _finish(run, saved, limit, components["events"]["ended"])
        session(plan).conclude(saved.step, components["events"]["ended"])
        return
    then = manifest["environment"]
    now = environment(plan)
    for difference in differences(then, now):
        warn(f"this resume will not give the same bits: {difference}")
    plan.make_env(
        1
    ).close()  # an environment that cannot be made is reported before the run changes
    point = Point(saved.step, components, manifest.get("journal"), writers(then, now))
    session(plan).train(point, total_timesteps, rescale)


def _check_none_gone(run: Run, status: str) -> None:
    """Raise UsageError if a run had a checkpoint: starting again would supersede its records."""
    made = (
        [record.data["name"] for record in read(run.journal, kinds=("checkpoint",))]
        if run.journal.exists()
        else []
    )
    last = next((name for name in reversed(made) if not name.startswith("best")), None)
    if last is not None or status == "finished":
        raise UsageError(
            f"run {run.name} cannot go on, since its checkpoints are gone from {run.directory.checkpoints_path}"
            f"{f' (the last was {last})' if last else ''}; bring them back, or train again with another --name"
        )


def _goal(
    run: Run, manifest: Mapping[str, Any], total_timesteps: int | None, rescale: bool
) -> tuple[int | None, bool]:
    """The limit, and whether schedules are rescaled to it: as asked now, or as the last process was asked.

    That one may have died before a checkpoint knew of it.
    """
    starts = (
        list(read(run.journal, manifest.get("journal", 0), kinds=("start",)))
        if run.journal.exists()
        else []
    )
    if total_timesteps is not None or not starts:
        return total_timesteps, rescale
    return starts[-1].data.get("limit"), rescale or starts[-1].data.get("rescale", False)


def _finish(run: Run, saved: Saved, limit: int, ended: str) -> UsageError:
    if saved.step >= limit:
        return UsageError(
            f"run {run.name} is finished at step {saved.step}; "
            f"'rlplug resume {shell_word(run.path)} --total-timesteps N' with a larger N continues"
        )
    return UsageError(
        f"run {run.name} is finished, stopped at step {saved.step}: {ended}; "
        f"'rlplug resume {shell_word(run.path)} --total-timesteps {limit}' continues without this condition"
    )


@add_python_notes()
@torch_defaults()
def load(
    run: Path | str | Run,
    checkpoint: str = "best",
    deterministic: bool = True,
    env: object = None,
    trust: bool = False,
) -> Policy:
    """The policy of a run, by its path or its name in `runs/`, or of an export: `policy(observation)` gives an action.

    Args:
        checkpoint: `best`, `final`, `latest` or a checkpoint's name; an export has only one policy.
        deterministic: whether it acts greedily; else it explores as in training at the checkpoint's step.
        env: the environment, if no name rebuilds it or if it has moved.
        trust: whether to execute code that came with the run although this account has not written it.

    Raises:
        UsageError: the run or the checkpoint does not exist, or no name rebuilds its environment. Untrusted: it has
            code that you have not trusted.
    """
    if not isinstance(run, Run) and (Path(run) / "policy.json").is_file():
        from rlplug_core.runs.exporting import (
            load_export,  # what takes programs apart is of no use to runs
        )

        return load_export(Path(run), deterministic, trust)
    return open_run(run, env=env, trust=trust).policy(checkpoint, deterministic)

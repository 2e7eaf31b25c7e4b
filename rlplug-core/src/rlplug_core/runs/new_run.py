"""Check a new run before anything is written, and create its directory."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rlplug_core.algorithm import Algorithm
from rlplug_core.errors import UsageError, warn
from rlplug_core.loop.build import require_replay
from rlplug_core.loop.device_memory import device_memory
from rlplug_core.loop.learner_checks import check_optimized
from rlplug_core.loop.learner_data import fit_dataset, gets_dataset
from rlplug_core.loop.memory_check import checkpoints_to_keep
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.request import RunRequest
from rlplug_core.protocols import AnyLearner, Env
from rlplug_core.runs.data import differences_from_run
from rlplug_core.runs.directory import RunDirectory, group_of
from rlplug_core.runs.messages import space_differences
from rlplug_core.runs.reproducibility import environment
from rlplug_core.runs.run import Run
from rlplug_core.runs.sources import copy_sources, identities
from rlplug_core.runs.trust import add_seal
from rlplug_core.runs.warm_start import WarmStart
from rlplug_core.sharing.words import is_source


def probe(request: RunRequest) -> None:
    """Check that the run of a request can start; data sets and other runs are not read.

    Raises:
        UsageError, PluginError: it cannot start.
    """
    check_plan(Plan.of(request))


def check_plan(plan: Plan) -> tuple[AnyLearner, str]:
    """Refuse a plan that cannot run, before anything is written.

    Returns:
        A learner for the plan, and a sentence about the memory of its device, or "".

    Raises:
        UsageError: the environment for evaluations has other spaces, the runner would not train all parameters, or the
            device has too little memory.
    """
    with closing(plan.make_env(1)) as env:
        learner = _make_learner(plan, env)
        memory_text = device_memory(plan, learner, env)
    if (
        plan.eval_source is plan.source
        and plan.eval_wrappings is None
        and not plan.source.is_object
    ):
        return learner, memory_text
    eval_env = plan.make_eval_env(1)
    eval_env.close()
    if differences := space_differences(eval_env.spec, env.spec):
        raise UsageError(
            f"evaluations in {eval_env.spec.id} do not fit training in {env.spec.id}: {differences}; name an "
            "environment with the same spaces"
        )
    return learner, memory_text


def _make_learner(plan: Plan, env: Env) -> AnyLearner:
    """Return a learner for the environment; raise UsageError if runner, wrappers or data set do not fit the two."""
    if plan.options.offline and complete(env).learned():
        raise UsageError(
            "a wrapper learns from env steps, and an offline run has none; leave the wrapper out"
        )
    if plan.runner != "sync" and complete(env).learned():
        raise UsageError(
            f"a wrapper learns from steps, and each worker would learn separately; use --runner sync with {plan.env}"
        )
    learner = plan.make_learner(env.spec)
    check_optimized(learner, plan.runner, plan.options.learners)
    if plan.dataset is not None:
        if plan.options.offline or not gets_dataset(plan.learner):
            require_replay(plan, learner.buffer())
        fit_dataset(plan.dataset, env)
        for sentence in differences_from_run(plan.dataset, plan.env):
            warn(sentence)
    return learner


def with_start(plan: Plan) -> tuple[Plan, WarmStart | None]:
    """Return the plan and its warm start, if any; its option `init` becomes a source or an absolute path."""
    if not plan.options.init:
        return plan, None
    warm = WarmStart.of(plan.options.init, plan.options.init_parts)
    if "buffer" in warm.parts and (plan.runner != "sync" or plan.options.dataset):
        raise UsageError("--init-parts buffer works only with --runner sync and without --dataset")
    warm.warn_of_wrappers()
    init = plan.options.init if is_source(plan.options.init) else str(warm.path)
    return replace(plan, options=replace(plan.options, init=init), start=warm), warm


def initial_buffer(
    warm: WarmStart | None,
    learner: AnyLearner,
    plan: Plan,
) -> Mapping[str, object] | None:
    """Return the state of the buffer that a run starts with, if any; raise UsageError if it does not fit."""
    buffer = warm.buffer() if warm else None
    if warm and buffer is not None:
        warm.check(buffer, learner.buffer().state_dict(), plan.options.num_envs)
    return buffer


def with_checkpoints(plan: Plan, learner: AnyLearner) -> tuple[Plan, str]:
    """Return the plan with the number of checkpoints to keep, and a sentence about their size if they are large."""
    if not isinstance(learner, Algorithm):  # the space of its observations is unknown
        return plan, ""
    count, disk_text = checkpoints_to_keep(plan.flat, learner.spec.obs)
    return replace(plan, options=replace(plan.options, keep_checkpoints=count)), disk_text


def create_run(plan: Plan, out: Path, name: str | None) -> Run:
    """Return a run with a new directory in `out`, which is locked."""
    short_name = plan.algorithm.rpartition(":")[2].rpartition("/")[2].lower()
    stem = f"{short_name}-{plan.env.rpartition(':')[2]}-s{plan.options.seed}"
    return Run(RunDirectory.create(out, name, stem), plan.source if plan.source.unnamed else None)


def describe_run(run: Run, plan: Plan, origins: Mapping[str, str]) -> None:
    """Write a new run's `config.json`, and copies of the user's files."""
    env = plan.env
    unnamed = {"unnamed": plan.source.unnamed} if plan.source.unnamed else {}
    data = {"dataset": plan.dataset.description} if plan.dataset else {}
    compared = {**plan.flat, "dataset": plan.dataset.sha256} if plan.dataset else plan.flat
    run.directory.write_config(
        add_seal(
            copy_sources(
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

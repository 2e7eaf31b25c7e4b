"""What a user holds: `train` a run, `resume` it, `load` its policy.

From Python:

    run = train("a3c", "CartPole-v1")
    print(run.evaluate().mean)
    policy = load(run)
    action = policy(observation)
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlplug_core.checkpoint import Checkpoints
from rlplug_core.clock import Clock
from rlplug_core.environment import differences, environment
from rlplug_core.errors import UsageError, warn
from rlplug_core.evaluate import Evaluation, evaluate
from rlplug_core.plan import Plan
from rlplug_core.plugins import Hooks, absolute
from rlplug_core.policy import Policy
from rlplug_core.presets import resolve
from rlplug_core.protocols import Env, Learner
from rlplug_core.rundir import RunDirectory, group_of
from rlplug_core.session import Session, Watch
from rlplug_core.sources import identities, keep, names


class Run:
    """A run directory, ready to be evaluated, loaded or resumed."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.path = directory.path
        self.name = directory.path.name
        self.journal = directory.journal_path

    @property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`."""
        return self.directory.config

    @property
    def status(self) -> str:
        """`running`, `finished`, `failed`, `interrupted`, or `killed`."""
        return self.directory.status()

    def evaluate(self, episodes: int = 100, seed: int | None = None, checkpoint: str = "best") -> Evaluation:
        """Play greedy episodes with a checkpoint's weights, on fresh environments.

        Args:
            episodes: how many, each in a row of its own.
            seed: of the environments; without one, the seed of the run's verdict.
            checkpoint: `best`, `final` or `latest`.
        """
        plan = plan_of(self)
        env = plan.make_env(episodes)
        try:
            learner = load_learner(self, plan, env, checkpoint)
            used = plan.seeds().child("verdict").integer() if seed is None else seed
            return evaluate(learner.agent(), env, used, Clock(plan.options.total_steps))
        finally:
            env.close()

    def policy(self, checkpoint: str = "best") -> Policy:
        """The policy of a checkpoint; see `load`."""
        return load(self, checkpoint)


def train(
    algorithm: str | type[Any],
    env: str,
    options: Mapping[str, Any] | None = None,
    *,
    out: Path | str = "runs",
    name: str | None = None,
    origins: Mapping[str, str] | None = None,
    watch: Watch | None = None,
    hooks: bool = True,
) -> Run:
    """Train `algorithm` on `env` and return the finished run.

    Args:
        algorithm: an id from `rlplug list`, `module:Class`, `./file.py:Class`, or the class itself.
        env: an environment id, `module:callable` or `./file.py:callable`.
        options: run options (`options.RunOptions`) and the algorithm's own, by dotted name; presets fill the rest.
        out: where run directories are made; `name` is the directory's name.
        origins: where each option came from, if the caller resolved presets already.
        watch: called several times a second with the run's `Progress`.
        hooks: whether hook plugins (such as MLflow's) take part.

    Raises:
        UsageError, PluginError: it cannot be started; nothing was written.
        Interrupted, RlplugError: it stopped or failed; what was recorded stays.
    """
    word = algorithm if isinstance(algorithm, str) else f"{algorithm.__module__}:{algorithm.__qualname__}"
    word, env = absolute(word), absolute(env)
    values = dict(options or {})
    if origins is None:
        values, origins = resolve(word, env, values)
    called = Hooks(enabled=hooks)
    called.configure(values)
    plan = Plan.make(word, env, values)
    probe = plan.make_env(1)  # what cannot be made is refused before anything is written
    plan.make_learner(probe.spec)
    probe.close()
    run = _created(plan, word, env, Path(out), name, origins)
    Session(plan, run, called, watch).train()
    return run


def _created(plan: Plan, algorithm: str, env: str, out: Path, name: str | None, origins: Mapping[str, str]) -> Run:
    """A new run directory in `out` with its `config.json`, and copies of the user's files."""
    short = algorithm.rpartition(":")[2].rpartition("/")[2].lower()
    stem = f"{short}-{env.rpartition(':')[2]}-s{plan.options.seed}"
    run = Run(RunDirectory.create(out, name, stem))
    run.directory.write_config(keep(run.path, {
        "name": run.name, "uid": uuid.uuid4().hex,
        "group": group_of(*identities(algorithm, env, plan.flat, plan.targets)), "algorithm": algorithm, "env": env,
        "options": plan.flat, "origins": {key: origins.get(key, "default") for key in plan.flat},
        "environment": environment(plan), "created": time.time(),
    }, plan.targets))  # fmt: skip
    return run


def resume(
    run: Path | str | Run,
    *,
    total_steps: int | None = None,
    rescale: bool = False,
    watch: Watch | None = None,
    hooks: bool = True,
) -> Run:
    """Go on with an interrupted run from its newest readable checkpoint; same bits as if it had never stopped.

    Args:
        total_steps: where to end instead; schedules keep the old total unless `rescale`.

    Raises:
        UsageError: there is no such run, it is running, or it is finished and no larger `total_steps` is given.
        BadCheckpoint: no checkpoint can be read.
    """
    run = run if isinstance(run, Run) else Run(RunDirectory.open(run))
    status = run.status
    if status == "running":
        run.directory.lock()
    plan = plan_of(run)
    checkpoints = Checkpoints(run.directory.checkpoints_path)
    saved, components, manifest, warnings = checkpoints.load(("final", "step"))
    for warning in warnings:
        warn(f"{warning}; falling back to {saved.path.name}")
    limit = total_steps or components["clock"]["limit"]
    if saved.kind == "final" and saved.step >= limit:
        raise UsageError(
            f"run {run.name} is finished at step {saved.step}; "
            f"`rlplug resume {run.path} --steps N` with a larger N goes on"
        )
    if saved.kind == "final" and total_steps is None:
        raise UsageError(
            f"run {run.name} is finished, stopped at step {saved.step}: {components['events']['ended']}; "
            f"`rlplug resume {run.path} --steps {limit}` goes on without this condition"
        )
    for difference in differences(manifest["environment"], environment(plan)):
        warn(f"this resume will not give the same bits: {difference}")
    Session(plan, run, Hooks(enabled=hooks), watch).train((saved.step, components), total_steps, rescale)
    return run


def load(run: Path | str | Run, checkpoint: str = "best") -> Policy:
    """The policy of a run's checkpoint (`best`, `final` or `latest`): `policy(observation)` gives an action."""
    run = run if isinstance(run, Run) else Run(RunDirectory.open(run))
    plan = plan_of(run)
    env = plan.make_env(1)
    return Policy(load_learner(run, plan, env, checkpoint).agent(), env)


def plan_of(run: Run) -> Plan:
    """The plan that a run was made from, with its own copies of files."""
    return Plan.make(*names(run.path, run.config, warn))


def load_learner(run: Run, plan: Plan, env: Env, checkpoint: str) -> Learner[Any]:
    """A learner with a checkpoint's weights.

    Raises:
        UsageError: `checkpoint` names no kind of checkpoint. BadCheckpoint: none can be read.
    """
    kinds = {"best": ("best",), "final": ("final",), "latest": ("final", "step", "best")}
    if checkpoint not in kinds:
        raise UsageError(f"no checkpoint '{checkpoint}'; use best, final or latest")
    saved, components, _, warnings = Checkpoints(run.directory.checkpoints_path).load(kinds[checkpoint], "learner")
    for warning in warnings:
        warn(f"{warning}; falling back to {saved.path.name}")
    learner = plan.make_learner(env.spec)
    learner.load_state_dict(components["learner"])
    return learner

"""Play an exported policy like a run: the plan that makes its environments, and its agent."""

from __future__ import annotations

from pathlib import Path

from rlplug_core.algorithm import Algorithm
from rlplug_core.clock import Clock
from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import UsageError
from rlplug_core.export.bundle import read
from rlplug_core.export.spaces import space_from_json
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_source import source_of
from rlplug_core.plugins.spec import WrapperSpec
from rlplug_core.protocols import Agent, Env
from rlplug_core.runs.messages import space_differences
from rlplug_core.runs.trust import require_plugins, unknown_wrappers
from rlplug_core.types import Spec


def export_plan(directory: Path, trust: bool = False) -> Plan:
    """Return a plan that only makes the environments of an export's evaluations.

    Raises:
        RlplugError: its files are damaged. UsageError: it does not name its environment.
        Untrusted: the environment or a wrapper is not an installed plugin, and `trust` does not allow it.
    """
    description = read(directory).about
    evaluation = description.get("evaluation") or {
        "env": description.get("env", ""),
        "wrap": [*description.get("wrap_each", ()), *description.get("wrap", ())],
    }
    name = evaluation["env"]
    words = evaluation.get("wrap", ())
    if not name:
        raise UsageError(f"{directory} does not name its environment; export the policy again")
    if not trust:
        require_plugins(directory, unknown_wrappers(words, name), env=name)
    source = source_of(name, evaluation.get("arguments", {}))
    return Plan(
        algorithm=str(description.get("algorithm", "")),
        env=source.name,
        learner=Algorithm,
        options=RunOptions(total_timesteps=max(1, description.get("step", 0))),
        config=None,
        wrappings=tuple(map(WrapperSpec.parse, words)),
        schedules={},
        source=source,
        eval_source=source,
    )


def export_agent(
    directory: Path,
    env: Env,
    checkpoint: str,
    explore: bool,
) -> tuple[Agent, Clock]:
    """Return the agent of an export for an environment, and the clock when it was written.

    Raises:
        UsageError: `checkpoint` has another form, `explore` is True, or the spaces differ.
    """
    if checkpoint.partition("-")[0] not in ("best", "final", "latest"):
        raise UsageError(f"{directory} is an export, which has one policy; leave out --checkpoint")
    if explore:
        raise UsageError(f"{directory} is an export, which is greedy; leave out --stochastic")
    export = read(directory)
    obs = space_from_json(export.about["observation_space"])
    action = space_from_json(export.about["action_space"])
    if difference := space_differences(env.spec, Spec(obs, action, env.spec.num_envs, env.spec.id)):
        raise UsageError(f"the policy of {directory} does not fit {env.spec.id}: {difference}")
    step = int(export.about.get("step", 0))
    return export.agent, Clock(max(1, step), step)

"""Plays episodes with the weights of a run's checkpoint: as in evaluation, or under other conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from rlplug_core.acting.disturbed_agent import DisturbedAgent
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError, did_you_mean, plain, warn
from rlplug_core.loop.evaluate import Evaluation, evaluate
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_source import source_of
from rlplug_core.plugins.spec import WrapperSpec
from rlplug_core.plugins.transform import freeze
from rlplug_core.protocols import Agent, AnyLearner, Env
from rlplug_core.runs.checkpoint import UNFIT, Checkpoints, Saved, digests, read
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.messages import space_differences
from rlplug_core.seeds import Seeds

#: The kinds of checkpoints that a word means; the newest one counts, and at one step the kind that is listed first.
KINDS = {"best": ("best",), "final": ("final",), "latest": ("final", "step", "best")}


@dataclass(frozen=True)
class Conditions:
    """The conditions of episodes; the defaults are those of the run's own evaluations, with the best checkpoint.

    Attributes:
        checkpoint: `best`, `final`, `latest`, or a name such as `step-000000010000`.
        stochastic: whether to explore as in training at the checkpoint's step.
        epsilon: an additional probability of a random action per step.
        env: another environment, with the same spaces, in any form that `train` takes.
        arguments: keyword arguments for it. Without `env` they override those of the run's own environment.
        wrap: wrappers to use instead of the run's; a string is one wrapper, and `none` means no wrapper.
    """

    checkpoint: str = "best"
    stochastic: bool = False
    epsilon: float = 0.0
    env: Any = None
    arguments: Mapping[str, object] | None = None
    wrap: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Real) or not 0 <= self.epsilon <= 1:
            raise UsageError(f"epsilon is {self.epsilon!r}; it is a probability from 0 to 1")

    def apply_to(self, plan: Plan) -> Plan:
        """Return the plan with the environment and wrappers of these conditions."""
        source = plan.eval_source if self.env is None else source_of(self.env)
        source = source.with_arguments(self.arguments or {})
        plan = replace(plan, env=source.name, source=source, eval_source=source)
        if self.wrap is None:
            return plan
        words = [self.wrap] if isinstance(self.wrap, str) else self.wrap
        return replace(
            plan, eval_wrappings=tuple(WrapperSpec.parse(text) for text in words if text != "none")
        )


#: The conditions of the run's own evaluations.
DEFAULT_CONDITIONS = Conditions()


def evaluate_checkpoint(
    plan: Plan,
    directory: RunDirectory,
    episodes: int,
    seed: int | None = None,
    conditions: Conditions = DEFAULT_CONDITIONS,
) -> Evaluation:
    """Play `episodes` episodes, each in its own environment; the default seed is that of the final evaluation.

    Raises:
        UsageError: a number is out of range, the checkpoint does not exist, or it does not fit the environment.
        BadCheckpoint: it cannot be read.
    """
    check_whole("episodes", episodes, 1)
    play_seed = seed_of(plan, seed)
    env = conditions.apply_to(plan).make_eval_env(episodes)
    try:
        agent, clock = prepare_agent(plan, directory, env, conditions, play_seed)
        return evaluate(agent, env, play_seed, clock, conditions.stochastic)
    finally:
        env.close()


def final_evaluation(
    plan: Plan,
    directory: RunDirectory,
    episodes: int,
) -> dict[str, object]:
    """Return the metrics of greedy episodes on new seeds: of the best checkpoint, and of the last weights (`last_…`).

    If both have the same weights, the episodes are played only once.

    Raises:
        BadCheckpoint: one of them is gone or cannot be read.
    """
    checkpoints = Checkpoints(directory.checkpoints_path)
    result = evaluate_checkpoint(plan, directory, episodes)
    best_returns = _returns(result)
    best, final = (checkpoints.kept(kind)[0] for kind in ("best", "final"))
    same_weights = best.step == final.step and digests(best.path, "learner") == digests(
        final.path, "learner"
    )
    last = (
        best_returns
        if same_weights
        else _returns(evaluate_checkpoint(plan, directory, episodes, None, Conditions("final")))
    )
    return {
        "checkpoint": best.path.name,
        "episodes": result.episodes,
        **best_returns,
        "last_checkpoint": final.path.name,
        **{f"last_{name}": value for name, value in last.items()},
    }


def _returns(result: Evaluation) -> dict[str, float]:
    success = {} if result.success_rate is None else {"success_rate": result.success_rate}
    return {
        "return_mean": result.mean,
        "return_std": result.std,
        "return_min": result.minimum,
        "return_max": result.maximum,
        **{f"return_mean/{agent}": mean for agent, mean in result.by_agent.items()},
        **success,
    }


def seed_of(plan: Plan, requested: int | None) -> int:
    """Return the requested seed, or that of the final evaluation, which no evaluation during training used.

    Raises:
        UsageError: the requested seed is not a whole number of at least 0.
    """
    if requested is None:
        return plan.seeds().child("final_eval").integer()
    check_whole("seed", requested, 0)
    return requested


def check_whole(name: str, number: int, least: int) -> None:
    """Check that the argument `name` of a Python function is a whole number of at least `least`.

    Raises:
        UsageError: it is not.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise UsageError(f"{name} is {number}; give a whole number of at least {least}")


def prepare_agent(
    plan: Plan,
    directory: RunDirectory,
    env: Env,
    conditions: Conditions,
    seed: int,
) -> tuple[Agent, Clock]:
    """Return the agent of a checkpoint or an export for an environment, and the clock at its env step."""
    if directory.is_export:
        from rlplug_core.runs.exports import export_agent  # only exports need it

        agent, clock = export_agent(
            directory.path, env, conditions.checkpoint, conditions.stochastic
        )
    else:
        learner, saved = load_learner(plan, directory, env, conditions.checkpoint)
        clock = Clock(plan.options.total_timesteps, saved.step)
        agent = learner.agent()
    if conditions.epsilon:
        agent = DisturbedAgent(agent, env.spec, conditions.epsilon, Seeds(seed))
    return agent, clock


def load_learner(
    plan: Plan,
    directory: RunDirectory,
    env: Env,
    checkpoint: str,
) -> tuple[AnyLearner, Saved]:
    """Return a learner with a checkpoint's weights, and the checkpoint; the wrappers of `env` get their saved state.

    Raises:
        UsageError: the checkpoint does not exist, or its weights do not fit the environment.
        BadCheckpoint: no checkpoint can be read.
    """
    saved, state = learner_state(Checkpoints(directory.checkpoints_path), checkpoint)
    try:
        learner = plan.make_learner(env.spec)
        learner.load_state_dict(state)
    except UsageError:  # the algorithm does not support the environment
        _check_spaces(plan, saved, env)
        raise
    except UNFIT as error:  # errors of torch and plugins for other shapes or names
        _check_spaces(plan, saved, env)
        message = plain((str(error).strip().splitlines() or [type(error).__name__])[-1])
        raise UsageError(
            f"the weights of {saved.path.name} do not fit {env.spec.id}: {message}"
        ) from error
    if (saved.path / "wrappers.json").is_file():
        freeze(env, read(saved.path, "wrappers")[0]["wrappers"])
    return learner, saved


def _check_spaces(plan: Plan, saved: Saved, env: Env) -> None:
    """Compare the spaces of an environment that a checkpoint does not fit with those of the run.

    Raises:
        UsageError: they differ.
    """
    with closing(plan.make_eval_env(1)) as run_env:
        differences = space_differences(env.spec, run_env.spec)
    if differences:
        raise UsageError(
            f"the weights of {saved.path.name} do not fit {env.spec.id}: {differences}; play them in the run's own "
            "environment and wrappers, or in an environment with the same spaces"
        )


def learner_state(
    checkpoints: Checkpoints,
    name: str,
) -> tuple[Saved, dict[str, object]]:
    """Return the learner's state in the checkpoint with this name.

    Raises:
        UsageError: the checkpoint does not exist. BadCheckpoint: no checkpoint can be read.
    """
    if not isinstance(name, str):
        raise UsageError(
            f"checkpoint is {name!r}; give a name: {', '.join(KINDS)}, or one of run.checkpoints"
        )
    if name in KINDS:
        saved, components, _, warnings = checkpoints.load(KINDS[name], "learner")
        for warning in warnings:
            warn(f"{warning}; falling back to {saved.path.name}")
        return saved, components["learner"]
    named = {saved.path.name: saved for saved in checkpoints.kept()}
    if name not in named:
        known = [*KINDS, *named]
        raise UsageError(
            f"no checkpoint '{name}'{did_you_mean(name, known)} (there is {', '.join(known)})"
        )
    return named[name], read(named[name].path, "learner")[0]["learner"]

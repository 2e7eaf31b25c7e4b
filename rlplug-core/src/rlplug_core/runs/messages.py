"""Messages about a run: its environment, options with little effect, how to continue, advice after a NaN."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces

from rlplug_core.clock import Clock
from rlplug_core.config.import_string import is_target
from rlplug_core.config.schema import flatten
from rlplug_core.errors import (
    BadCheckpoint,
    Interrupted,
    NotWritten,
    RlplugError,
    Stopped,
    quote_all,
)
from rlplug_core.loop.actor import start_agent
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.plugins.env_kind import kind_of
from rlplug_core.plugins.families import time_limit
from rlplug_core.plugins.names import find
from rlplug_core.plugins.preset_files import chain
from rlplug_core.plugins.presets import is_known
from rlplug_core.processor import cores
from rlplug_core.protocols import Agent, Env
from rlplug_core.runs.checkpoint import Checkpoints, Saved, read
from rlplug_core.runs.files import shell_word
from rlplug_core.seeds import preserve_generators
from rlplug_core.types import Array, Space, Spec

#: Options of every run that only some runners use.
RUNNERS = {
    "workers": ("async",),
    "actors": ("decoupled",),
    "max_lag": ("decoupled",),
    "chunk_steps": ("decoupled",),
    "cpus_per_actor": ("decoupled",),
    "inline": ("async", "decoupled"),
}


def remarks(plan: Plan, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield sentences about options that have less effect than their values suggest, or another effect.

    `origins` has the origin of each option's value: `default`, `preset`, or the way the user set it.
    """
    set_by_user = {name for name, origin in origins.items() if origin not in ("preset", "default")}
    yield from _warn_of_large_batches(plan)
    yield from _warn_of_last_chunk(plan)
    yield from _warn_of_many_processes(plan)
    yield from _warn_of_unused(plan, set_by_user)
    if "env_workers" in set_by_user:
        yield from _warn_of_idle_workers(plan)


def _warn_of_large_batches(plan: Plan) -> Iterator[str]:
    """Warn about minibatches that are larger than a rollout."""
    values = plan.flat
    if not {"n_steps", "n_epochs", "batch_size"} <= values.keys():
        return
    rollout = values["n_steps"] * plan.options.num_envs
    if values["batch_size"] > rollout:
        yield (
            f"batch_size is {values['batch_size']:,}, and a rollout has {rollout:,} steps (n_steps times num_envs): "
            "each epoch is one minibatch of all of them"
        )


def _warn_of_last_chunk(plan: Plan) -> Iterator[str]:
    """Warn about a run that ends later than its total, because its last chunk is counted and used as a whole."""
    options = plan.options
    if (
        plan.runner == "decoupled"
        and not options.inline
        and 10 * plan.chunk_steps * options.num_envs > options.total_timesteps
    ):
        yield (
            f"total_timesteps is {options.total_timesteps:,}, and a chunk of an actor has "
            f"{plan.chunk_steps * options.num_envs:,} env steps (chunk_steps times num_envs), which are learned from "
            "whole: the run ends up to a chunk later; a smaller --chunk-steps ends it sooner"
        )


def _warn_of_many_processes(plan: Plan) -> Iterator[str]:
    """Warn about more processes than cores."""
    counts = {
        "async": ("workers", plan.options.workers),
        "decoupled": ("actors", plan.options.actors),
    }
    stepping = min(plan.options.env_workers, plan.options.num_envs)
    default = (
        ("learners", plan.options.learners)
        if plan.options.learners > 1
        else ("env_workers", stepping)
    )
    name, count = counts.get(plan.runner, default)
    if count > cores() and not plan.options.inline:
        yield f"{name} is {count}, and this machine has {cores()} cores: they will share cores and be no faster"


def _warn_of_unused(plan: Plan, set_by_user: set[str]) -> Iterator[str]:
    """Warn about options that only other runners use."""
    for name, runners in RUNNERS.items():
        if name in set_by_user and plan.runner not in runners:
            usable = [runner for runner in runners if runner in plan.learner.runners]
            names = " or ".join(map(repr, runners))
            reason = f"it is for the runner {names}, under which {plan.algorithm} does not run"
            remedy = f"use --runner {' or '.join(usable)}" if usable else reason
            yield f"{name} has no effect under the runner '{plan.runner}'; {remedy}"


def _warn_of_idle_workers(plan: Plan) -> Iterator[str]:
    """Warn about environment workers without environments."""
    options = plan.options
    if options.offline and options.env_workers > 1:
        yield "env_workers has no effect in an offline run, which steps no environment to learn"
    elif options.num_envs == 1 < options.env_workers:
        yield f"env_workers is {options.env_workers}, which has no effect with a single environment; use --num-envs too"
    elif options.env_workers > options.num_envs:
        yield (
            f"env_workers is {options.env_workers}, and there are {options.num_envs} environments: each gets only one "
            "process"
        )


#: Options that set the size of gradient steps, and those of each network, by the name of its optimizer.
STEP_SIZES = ("learning_rate", "critic_learning_rate", "target_kl", "kfac_clip")
STEP_SIZES_OF = {
    "critic": ("critic_learning_rate",),
    "policy": ("learning_rate", "target_kl", "kfac_clip"),
}


def with_resume(error: NotWritten, run: Path) -> NotWritten:
    """Return the error about a file that cannot be written, with the command that continues the run."""
    resume = f"rlplug resume {shell_word(run)}"
    return NotWritten(error.what, f"{error.remedy}, then continue with '{resume}'")


def interrupted(
    number: int,
    step: int,
    run: Path,
    saved: bool,
    finished: bool = False,
) -> Interrupted:
    """Return the error of a run that a signal stopped.

    Args:
        saved: whether the run has a checkpoint of this step.
        finished: whether the signal came too late to stop it.
    """
    name = signal.Signals(number).name
    if finished:
        command = f"rlplug show {shell_word(run)}"
        return Interrupted(f"stopped by {name}; the run is finished: {command}", number)
    remedy = (
        ", checkpoint saved; to continue"
        if saved
        else "; to continue from the last checkpoint, as --resume-exact asks"
    )
    sentence = f"stopped by {name} at step {step}{remedy}: rlplug resume {shell_word(run)}"
    return Interrupted(sentence, number)


def add_resume_command(error: Stopped, run: Path) -> Stopped:
    """Return the error of a second signal with the command that continues the run."""
    resume = f"rlplug resume {shell_word(run)}"
    return Stopped(
        f"{error}; to continue from the last checkpoint: {resume}", error.exit_code - 128
    )


def advice(plan: Plan, checkpoints: Checkpoints, failure: str) -> str:
    """Return advice after a NaN: the last good checkpoint, metrics to look at, and options for smaller steps.

    `failure` is the message of a `NonFinite`, which names the optimizer.
    """
    last = last_good(checkpoints)
    location = f"the last good checkpoint is {last.path}" if last else "there is no checkpoint yet"
    smaller_options = "".join(
        f" --set {name}={value:g}" for name, value in smaller_steps(plan, failure).items()
    )
    pair = f"{shell_word(plan.algorithm)} {shell_word(plan.env)}"
    init_option = f" --init {shell_word(last.path)}" if last else ""
    return (
        f"{location}; look at the size of rewards and observations, clip gradients or take smaller steps: 'rlplug run "
        f"{pair}{smaller_options}{init_option}' with your other options starts {'from there' if last else 'again'}"
    )


def smaller_steps(plan: Plan, failure: str) -> dict[str, float]:
    """Return half of each learning rate or trust region, but at most its default.

    `failure` is as for `advice`. If it names a network, only that network's options are returned.
    """
    values = flatten(plan.config)
    defaults = flatten(type(plan.config)())
    halves = {
        name: values[name] / 2 for name in STEP_SIZES if isinstance(values.get(name), int | float)
    }
    halves = {name: min(half, defaults[name] or half) for name, half in halves.items()}
    networks = [network for network in STEP_SIZES_OF if network in failure]
    named = {name for network in networks for name in STEP_SIZES_OF[network]}
    return {name: half for name, half in halves.items() if name in named} or halves


def last_good(checkpoints: Checkpoints) -> Saved | None:
    """Return the newest readable checkpoint with only finite weights."""
    return next(
        (saved for saved in checkpoints.kept("final", "step", "best") if _finite(saved)), None
    )


def _finite(saved: Saved) -> bool:
    try:
        components, _ = read(saved.path, "learner")
    except BadCheckpoint:
        return False
    return all(np.isfinite(array).all() for array in _arrays(components))


def _arrays(tree: object) -> Iterator[Array]:
    """Yield the arrays of floating point numbers in the state of components."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            yield from _arrays(branch)
    elif isinstance(tree, torch.Tensor) and tree.is_floating_point():
        yield tree.numpy()
    elif isinstance(tree, np.ndarray) and tree.dtype.kind == "f":
        yield tree


#: Steps after which a walk ends, and seconds in the environment after which it ends earlier.
WALK_STEPS = 1_000
WALK_SECONDS = 0.3


def survey(plan: Plan) -> str:
    """Describe an environment: spaces, time limit, speed, preset, `num_envs`, normalization; "" if a preset names it.

    It makes a separate environment and steps it with the actions of an untrained agent.
    """
    if is_known(plan.algorithm, plan.env):
        return ""
    env = plan.make_eval_env(1)
    try:
        speed = walk(plan.make_learner(env.spec).agent(), env).speed
        action_space = complete(env).action_space
    finally:
        env.close()
    limit = time_limit(plan.env, env.spec.limit)
    return "\n".join(
        (
            f"environment  {env.spec.id}: observation space {space_text(env.spec.obs)}, "
            f"action space {space_text(action_space)}; {limit}; {speed:,.0f} steps/s by itself",
            f"             {_preset(plan, env.spec)}; num_envs {plan.options.num_envs}; {_normalization(plan)}",
        )
    )


@dataclass
class Walk:
    """Measurements of some steps of an environment.

    Attributes:
        steps: the sum over all rows.
        seconds: the time in the environment, without the agent's.
        low, high: the smallest and the largest reward.
    """

    steps: int = 0
    seconds: float = 0.0
    low: float = inf
    high: float = -inf

    @property
    def speed(self) -> float:
        """Return the steps per second."""
        return self.steps / self.seconds


def walk(agent: Agent, env: Env) -> Walk:
    """Step an environment with an agent and measure it."""
    result = Walk()
    with preserve_generators():
        agent, memory = start_agent(agent, env.spec)
        now = env.reset(0)
        while result.steps < WALK_STEPS and result.seconds < WALK_SECONDS:
            act = agent.act(now.obs, now.is_first, memory, Clock(1))
            memory = act.recurrent_state
            began = time.perf_counter()
            now = env.step(act.action)
            result.seconds += time.perf_counter() - began
            result.steps += env.spec.num_envs
            rewards = now.reward[now.valid].tolist()
            result.low = min(result.low, *rewards, inf)
            result.high = max(result.high, *rewards, -inf)
    return result


def space_text(space: Space) -> str:
    """Return a short description of a space; of a Box with its bounds only if all entries have the same ones."""
    if isinstance(space, spaces.Dict):
        return (
            "{"
            + ", ".join(f"{name}: {space_text(part)}" for name, part in space.spaces.items())
            + "}"
        )
    if not isinstance(space, spaces.Box):
        return str(space)
    size = f"Box({', '.join(map(str, space.shape))}) of {space.dtype}"
    if not space.low.size:
        return size
    low = space.low.min()
    high = space.high.max()
    has_equal_bounds = space.low.max() == low > -np.inf and space.high.min() == high < np.inf
    bounds = f" in [{low:g}, {high:g}]" if has_equal_bounds else ""
    return size + bounds


def space_differences(actual: Spec, expected: Spec) -> str:
    """Return a description of the differences between the spaces of two environments; "" without differences."""
    return ", ".join(
        [
            *_differences(actual.obs, expected.obs, "observations"),
            *_differences(actual.action, expected.action, "actions"),
        ]
    )


def _differences(actual: Space, expected: Space, noun: str) -> Iterator[str]:
    """Yield the differences between two spaces; of Dicts only those of entries that differ."""
    if not (isinstance(actual, spaces.Dict) and isinstance(expected, spaces.Dict)):
        if actual != expected:
            # The bounds of a Box may differ in some entries only.
            text_of = str if space_text(actual) == space_text(expected) else space_text
            yield f"its {noun} are {text_of(actual)} instead of {text_of(expected)}"
        return
    if missing := [name for name in expected if name not in actual.spaces]:
        yield f"its {noun} lack {quote_all(missing)}"
    if extra := [name for name in actual if name not in expected.spaces]:
        yield f"its {noun} have {quote_all(extra)} too"
    for name in actual:
        if name in expected.spaces:
            yield from _differences(actual[name], expected[name], f"{noun}/{name}")


def _preset(plan: Plan, spec: Spec) -> str:
    files = [] if is_target(plan.algorithm) else chain(find("algorithms", plan.algorithm))
    kind = kind_of(spec)
    has_preset = any(kind in presets.kinds for presets in files)
    return f"preset: {kind}" if has_preset else "no preset"


def _normalization(plan: Plan) -> str:
    nouns = {"net.normalize_obs": "observations", "normalize_reward": "rewards"}
    normalized = [noun for name, noun in nouns.items() if plan.flat.get(name)]
    return f"{' and '.join(normalized)} normalized" if normalized else "nothing normalized"


def missing_run_error(run: Path) -> RlplugError:
    """Return the error of a run without its directory."""
    return RlplugError(
        f"the run directory {run} was deleted or moved, so the run has stopped; if it was moved, 'rlplug resume' "
        "continues from its last checkpoint"
    )

"""The data set of a run: read at the start, compared with its hash on a resume, or recorded with the run's policy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlplug_core.buffers.dataset import FIELDS, MINARI, Dataset, flatten
from rlplug_core.buffers.dataset_files import ABOUT, read
from rlplug_core.clock import Clock
from rlplug_core.config.files import sync_directory, temporary_directory
from rlplug_core.errors import UsageError
from rlplug_core.loop.actor import StepAgent
from rlplug_core.loop.plan import Plan
from rlplug_core.plugins.env_base import complete
from rlplug_core.protocols import Agent, Env
from rlplug_core.runs.directory import RunDirectory
from rlplug_core.runs.evaluation import Conditions, check_whole, prepare_agent, seed_of
from rlplug_core.runs.files import writing
from rlplug_core.runs.sources import identity, original_name
from rlplug_core.seeds import preserve_generators
from rlplug_core.types import Array, Timestep, tree_map


def with_dataset(
    plan: Plan,
    recorded: Mapping[str, Any] | None = None,
    run: Path | None = None,
) -> Plan:
    """Return the plan with its data set, if it names one, under an absolute path.

    Args:
        recorded: the description of the data set at the start of the run.
        run: the run's directory, which may have moved together with the data set.

    Raises:
        UsageError: the data set does not exist, or has changed. BadFile: it cannot be read.
    """
    if not plan.options.dataset:
        return plan
    dataset = read(plan.options.dataset if run is None else _find_moved(plan.options.dataset, run))
    if recorded is not None and dataset.sha256 != recorded["sha256"]:
        raise UsageError(
            f"the data set {dataset.place} has changed since the run started: its SHA-256 is {dataset.sha256[:12]}… "
            f"with {len(dataset):,} transitions, and was {recorded['sha256'][:12]}… with "
            f"{recorded['transitions']:,}; bring back the old one"
        )
    return replace(plan, options=replace(plan.options, dataset=dataset.place), dataset=dataset)


def _find_moved(place: str, run: Path) -> str:
    """Return the path of a data set; if it is gone, the nearest file with its name in the folders above the run.

    The caller compares the hash.

    Raises:
        UsageError: the file does not exist.
    """
    path = Path(place)
    folders = run.absolute().parents
    if place.startswith(MINARI) or path.exists():
        return place
    path_ends = [Path(*path.parts[-count:]) for count in range(1, len(path.parts))]
    moved = next(
        (folder / end for folder in folders for end in path_ends if (folder / end).is_file()), None
    )
    if moved is None:
        raise UsageError(
            f"the data set {place} of run {run.name} is gone; bring it back, or put it next to the run"
        )
    return str(moved)


def differences_from_run(dataset: Dataset, env: str) -> Iterator[str]:
    """Yield sentences about differences between a data set's description and the run."""
    if dataset.env and dataset.env != env and identity(dataset.env) != identity(env):
        yield f"the data set {dataset.place} says that it was recorded in {dataset.env}, and this run is in {env}"


@dataclass(frozen=True)
class Recording:
    """A data set as stored, and the undiscounted returns of the episodes that ended in it."""

    dataset: Dataset
    returns: tuple[float, ...]


def _check_recording(path: Path, steps: int, num_envs: int) -> None:
    """Raise UsageError if a data set cannot be written to this path, or a number is out of range."""
    check_whole("steps", steps, 1)
    check_whole("num_envs", num_envs, 1)
    if path.suffix != ".npz":
        raise UsageError(f"a data set is a file that ends with .npz, and {path} does not")
    if path.exists():
        raise UsageError(
            f"{path} exists already, and a run may depend on its hash; choose another name"
        )


def record(
    plan: Plan,
    directory: RunDirectory,
    path: Path,
    steps: int,
    num_envs: int,
    seed: int | None,
    conditions: Conditions,
) -> Recording:
    """Play a checkpoint for `steps` steps, summed over `num_envs` environments, and write them to a new file.

    Observations are those that the agent saw. Rewards and actions are the environment's, as in evaluations. The file
    has the steps of one environment after those of another; the last step of each counts as truncated.

    Raises:
        UsageError: the file exists, a number is out of range, or the checkpoint does not exist.
        NotWritten: the disk is full.
    """
    _check_recording(path, steps, num_envs)
    play_seed = seed_of(plan, seed)
    recording_plan = conditions.apply_to(plan)
    name = original_name(directory.path, directory.config, recording_plan.env)
    env = recording_plan.make_eval_env(num_envs)
    try:
        agent, clock = prepare_agent(plan, directory, env, conditions, play_seed)
        arrays, returns = _play_episodes(
            agent, env, play_seed, clock, steps, explore=conditions.stochastic
        )
    finally:
        env.close()
    description = {
        "env": name,
        "algorithm": plan.algorithm,
        "run": directory.path.name,
        "checkpoint": conditions.checkpoint,
        "stochastic": conditions.stochastic,
        "epsilon": conditions.epsilon,
        "seed": play_seed,
        "wrap": plan.options.wrap,
    }
    dataset = Dataset(str(path.absolute()), arrays, name)
    _write(path, {**flatten(arrays), ABOUT: np.array(json.dumps(description))})
    return Recording(dataset, returns)


def _play_episodes(
    agent: Agent,
    env: Env,
    seed: int,
    clock: Clock,
    steps: int,
    explore: bool,
) -> tuple[dict[str, object], tuple[float, ...]]:
    """Return the transitions [M, ...], one environment after another, and the returns of the episodes that ended."""
    rows: list[dict[str, object]] = []
    returns: list[float] = []
    count = 0
    with preserve_generators():
        player = StepAgent(agent, env, seed)
        while count < steps:
            obs = tree_map(np.copy, player.now.obs)
            act = player.step(clock, explore)
            rows.append(_transition(env, obs, act.action, player.now))
            returns += [episode.total for episode in player.now.episodes]
            count += player.now.count
    return _by_row(rows), tuple(returns)


def _transition(
    env: Env,
    obs: Any,
    action: Array,
    now: Timestep,
) -> dict[str, object]:
    """Return copies of the transitions [N, ...] of one vector step; `valid` marks the rows that have one."""
    env_action = complete(env).translate(action)
    if not isinstance(env_action, np.ndarray):
        raise UsageError(
            f"{env.spec.id} has actions of several parts, which data sets cannot store yet"
        )
    values = (obs, env_action, now.reward, now.final_obs, now.terminated, now.truncated)
    copies = {name: tree_map(np.copy, value) for name, value in zip(FIELDS, values, strict=True)}
    return {**copies, "valid": now.valid.copy()}


def _by_row(rows: list[dict[str, Any]]) -> dict[str, object]:
    """Return steps [T] of [N, ...] as transitions [M, ...], row after row; the last one of each row is truncated."""
    valid = np.stack([row.pop("valid") for row in rows], 1)
    transitions: dict[str, Any] = tree_map(lambda *steps: np.stack(steps, 1)[valid], *rows)
    last = valid.sum(1).cumsum()[valid.any(1)] - 1
    transitions["truncations"][last] |= ~transitions["terminations"][last]
    return transitions


def _write(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write a new archive; a reader sees all of it or nothing.

    Raises:
        NotWritten: the system refused.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_directory(path.with_name(f".{path.name}.tmp")) as folder:
            temporary = folder / path.name
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_directory(path.parent)

"""The numbers of a comparison: final scores, probabilities of improvement, and the cost of a return."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from rlplug_cli.compare.files import name_among
from rlplug_cli.compare.history import RETURN, SECONDS, History
from rlplug_cli.compare.lines import Settings, envs
from rlplug_cli.compare.selection import Arm
from rlplug_cli.compare.statistics import (
    Aggregate,
    Estimate,
    Floats,
    draws,
    estimate,
    probability_of_improvement,
)
from rlplug_core.errors import UsageError

#: The final scores that a run may have, in the order of tables.
CHECKPOINTS = ("last", "best")
#: The aggregates of one environment; the median is taken over environments, so only all of them have one.
AGGREGATES: tuple[Aggregate, ...] = ("iqm", "mean")
OVERALL: tuple[Aggregate, ...] = (*AGGREGATES, "median")
#: The name of all environments combined.
ALL = "all, normalized"


class Score(NamedTuple):
    """One arm's final score on one environment or over `ALL`, by each aggregate.

    `seeds` is the number of runs; over `ALL`, that of the environment with the fewest.
    """

    env: str
    label: str
    checkpoint: str
    seeds: int
    estimates: dict[str, Estimate]


class Improvement(NamedTuple):
    """The probability that a run of one arm scores above one of another, over the environments that both have."""

    better: str
    worse: str
    envs: tuple[str, ...]
    probability: Estimate


class Cost(NamedTuple):
    """The steps and seconds of one arm's runs on one environment until an evaluation reached `target`.

    Each cost is (median, least, most) over the seeds. The most is infinite if a run never reached the target, and the
    median if half of the runs did not. An unfinished run counts only if it has reached the target.
    """

    env: str
    label: str
    target: float
    seeds: int
    reached: int
    steps: tuple[float, float, float]
    seconds: tuple[float, float, float]


def scores(arms: Sequence[Arm], settings: Settings) -> list[Score]:
    """Return the final scores by environment, arm and checkpoint."""
    result = []
    for env in envs(arms):
        for arm in arms:
            for checkpoint in CHECKPOINTS:
                values = final_scores(arm.on(env), checkpoint)
                if len(values):
                    result.append(_score(env, arm.label, checkpoint, [values], settings))
    return result


def overall(arms: Sequence[Arm], settings: Settings) -> list[Score]:
    """Return the aggregates over all environments of scores scaled by `settings.bounds`; none without bounds.

    Raises:
        UsageError: an environment has no bounds, or they name one without runs.
    """
    tasks = envs(arms)
    bounds = {name_among(tasks, env): pair for env, pair in (settings.bounds or {}).items()}
    if bounds and set(bounds) != set(tasks):
        names = ", ".join(tasks)
        raise UsageError(
            f"--normalize is for {', '.join(bounds)}, but the runs are of {names}; give ENV=LOW:HIGH for each"
        )
    result = []
    for arm in arms if bounds else ():
        for checkpoint in CHECKPOINTS:
            values = []
            for env in tasks:
                low, high = bounds[env]
                values.append((final_scores(arm.on(env), checkpoint) - low) / (high - low))
            if all(len(task) for task in values):
                score = _score(ALL, arm.label, checkpoint, values, settings, aggregates=OVERALL)
                result.append(score)
    return result


def _score(
    env: str,
    label: str,
    checkpoint: str,
    tasks: Sequence[Floats],
    settings: Settings,
    aggregates: Sequence[Aggregate] = AGGREGATES,
) -> Score:
    sizes = [len(task) for task in tasks]
    drawn = draws(sizes, settings.reps, np.random.default_rng(0))
    estimates: dict[str, Estimate] = {
        how: estimate(tasks, how, drawn, settings.confidence) for how in aggregates
    }
    return Score(env, label, checkpoint, min(sizes), estimates)


def final_scores(runs: Sequence[History], checkpoint: str) -> Floats:
    """Return the final scores of the runs that have one."""
    return np.array([run.scores[checkpoint] for run in runs if checkpoint in run.scores])


def improvements(arms: Sequence[Arm], settings: Settings) -> list[Improvement]:
    """Return every pair of arms with a common environment; the better one is first."""
    result = []
    for first, second in combinations(arms, 2):
        tasks = [
            (
                env,
                final_scores(first.on(env), settings.checkpoint),
                final_scores(second.on(env), settings.checkpoint),
            )
            for env in envs([first])
        ]
        tasks = [task for task in tasks if len(task[1]) and len(task[2])]
        if tasks:
            result.append(_improvement(first.label, second.label, tasks, settings))
    return result


def _improvement(
    first: str,
    second: str,
    tasks: Sequence[tuple[str, Floats, Floats]],
    settings: Settings,
) -> Improvement:
    names, first_scores, second_scores = (list(column) for column in zip(*tasks, strict=True))
    generator = np.random.default_rng(0)
    drawn = tuple(
        draws([len(task) for task in side], settings.reps, generator)
        for side in (first_scores, second_scores)
    )
    probability = probability_of_improvement(
        first_scores, second_scores, (drawn[0], drawn[1]), settings.confidence
    )
    if probability.value < 0.5:
        first, second, probability = (
            second,
            first,
            Estimate(1 - probability.value, 1 - probability.high, 1 - probability.low),
        )
    return Improvement(first, second, tuple(map(str, names)), probability)


def costs(arms: Sequence[Arm], settings: Settings) -> list[Cost]:
    """Return the steps and seconds of each arm until its target return.

    Raises:
        UsageError: a target names an environment without runs.
    """
    tasks = envs(arms)
    targets = {name_among(tasks, env): target for env, target in (settings.targets or {}).items()}
    result = []
    if unknown := [env for env in targets if env and env not in tasks]:
        raise UsageError(
            f"--target is for {', '.join(unknown)}, but the runs are of {', '.join(tasks)}; give ENV=RETURN for these"
        )
    for env in tasks:
        target = targets.get(env, targets.get(""))
        if target is not None:
            result += [cost for arm in arms if (cost := _cost(arm, env, target)) is not None]
    return result


def _cost(arm: Arm, env: str, target: float) -> Cost | None:
    """Return the cost of one arm on one environment; None without a run that counts."""
    costs = []
    for run in arm.on(env):
        if RETURN in run.curves:
            cost = cost_of_target(run, target)
            if run.is_finished or math.isfinite(cost[0]):  # else it may still reach the target
                costs.append(cost)
    if not costs:
        return None
    steps, seconds = np.array(costs).T
    return Cost(
        env,
        arm.label,
        target=target,
        seeds=len(costs),
        reached=int(np.isfinite(steps).sum()),
        steps=_spread(steps),
        seconds=_spread(seconds),
    )


def cost_of_target(run: History, target: float) -> tuple[float, float]:
    """Return the env step and the second of a run's first evaluation of at least `target`; infinite without one."""
    curve = run.curves[RETURN]
    positions = np.flatnonzero(curve.values >= target)
    if not len(positions):
        return math.inf, math.inf
    seconds, _ = (
        run.points(RETURN, "seconds")
        if SECONDS in run.curves
        else (np.full(len(curve.steps), math.nan), None)
    )
    return float(curve.steps[positions[0]]), float(seconds[positions[0]])


def _spread(values: Floats) -> tuple[float, float, float]:
    ordered = np.sort(values)  # np.median of an even number of infinities is NaN
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return float(middle), float(ordered[0]), float(ordered[-1])

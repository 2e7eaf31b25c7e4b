"""The figures of a comparison: final scores, probabilities of improvement, and what a return costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

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
#: Of one environment; the median is one of environments, and so of all of them alone.
AGGREGATES: tuple[Aggregate, ...] = ("iqm", "mean")
#: What stands for an environment where scores of several are put together.
ALL = "all, normalized"


class Score(NamedTuple):
    """One arm's final score on one environment or over `ALL`, by each aggregate; `seeds` are the fewest of one."""

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
    """The costs of one arm's runs on one environment until an evaluation reached `target`.

    Each cost is (median, least, most) over the seeds; infinite where a run, or half of them, never reached it. A run
    that is not finished counts once it has reached it.
    """

    env: str
    label: str
    target: float
    seeds: int
    reached: int
    steps: tuple[float, float, float]
    seconds: tuple[float, float, float]


def scores(arms: Sequence[Arm], settings: Settings) -> list[Score]:
    """Final scores by environment, arm and checkpoint."""
    found = []
    for env in envs(arms):
        for arm in arms:
            for checkpoint in CHECKPOINTS:
                values = final(arm.on(env), checkpoint)
                if len(values):
                    found.append(_score(env, arm.label, checkpoint, [values], settings))
    return found


def overall(arms: Sequence[Arm], settings: Settings) -> list[Score]:
    """The aggregates over all environments, of scores between the bounds of `settings.bounds`; none without any.

    Raises:
        UsageError: an environment has none, or they are of one that no run is of.
    """
    bounds = settings.bounds or {}
    tasks = envs(arms)
    if bounds and set(bounds) != set(tasks):
        names = ", ".join(tasks)
        raise UsageError(
            f"--normalize is for {', '.join(bounds)}, and the runs are of {names}; give ENV=LOW:HIGH for each"
        )
    found = []
    for arm in arms if bounds else ():
        for checkpoint in CHECKPOINTS:
            values = [_between(final(arm.on(env), checkpoint), *bounds[env]) for env in tasks]
            if all(len(task) for task in values):
                aggregates = (*AGGREGATES, "median")
                found.append(
                    _score(
                        ALL,
                        arm.label,
                        checkpoint,
                        tasks=values,
                        settings=settings,
                        aggregates=aggregates,
                    )
                )
    return found


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
    by: dict[str, Estimate] = {
        how: estimate(tasks, how, drawn, settings.confidence) for how in aggregates
    }
    return Score(env, label, checkpoint, min(sizes), by)


def _between(values: Floats, low: float, high: float) -> Floats:
    found: Floats = (values - low) / (high - low)
    return found


def final(runs: Sequence[History], checkpoint: str) -> Floats:
    """The final scores of those runs that have one."""
    return np.array([run.scores[checkpoint] for run in runs if checkpoint in run.scores])


def improvements(arms: Sequence[Arm], settings: Settings) -> list[Improvement]:
    """Every pair of arms with an environment in common, the one that is more likely above first."""
    found = []
    for one, other in combinations(arms, 2):
        tasks = [
            (
                env,
                final(one.on(env), settings.checkpoint),
                final(other.on(env), settings.checkpoint),
            )
            for env in envs([one])
        ]
        tasks = [task for task in tasks if len(task[1]) and len(task[2])]
        if tasks:
            found.append(_improvement(one.label, other.label, tasks, settings))
    return found


def _improvement(
    one: str, other: str, tasks: Sequence[tuple[str, Floats, Floats]], settings: Settings
) -> Improvement:
    names, ours, theirs = (list(column) for column in zip(*tasks, strict=True))
    generator = np.random.default_rng(0)
    drawn = tuple(
        draws([len(task) for task in side], settings.reps, generator) for side in (ours, theirs)
    )
    found = probability_of_improvement(ours, theirs, (drawn[0], drawn[1]), settings.confidence)
    if found.value < 0.5:
        one, other, found = other, one, Estimate(1 - found.value, 1 - found.high, 1 - found.low)
    return Improvement(one, other, tuple(map(str, names)), found)


def costs(arms: Sequence[Arm], settings: Settings) -> list[Cost]:
    """Return what each arm spent until its target, where there is one.

    Raises:
        UsageError: a target is of an environment that no run is of.
    """
    targets = settings.targets or {}
    found = []
    tasks = envs(arms)
    if foreign := [env for env in targets if env and env not in tasks]:
        raise UsageError(
            f"--target is for {', '.join(foreign)}, and the runs are of {', '.join(tasks)}; give ENV=RETURN for these"
        )
    for env in envs(arms):
        target = targets.get(env, targets.get(""))
        if target is None:
            continue
        for arm in arms:
            if spent := [cost for run in arm.on(env) if (cost := _spent(run, target)) is not None]:
                steps, seconds = np.array(spent).T
                count = int(np.isfinite(steps).sum())
                found.append(
                    Cost(
                        env,
                        arm.label,
                        target=target,
                        seeds=len(spent),
                        reached=count,
                        steps=_spread(steps),
                        seconds=_spread(seconds),
                    )
                )
    return found


def _spent(run: History, target: float) -> tuple[float, float] | None:
    """The env step and the second of a run's target; None without evaluations, and while it may reach it yet."""
    if RETURN not in run.curves:
        return None
    cost = reached(run, target)
    return cost if run.finished or math.isfinite(cost[0]) else None


def reached(run: History, target: float) -> tuple[float, float]:
    """The env step and the second of a run's first evaluation of at least `target`; infinite without one."""
    curve = run.curves[RETURN]
    places = np.flatnonzero(curve.values >= target)
    if not len(places):
        return math.inf, math.inf
    seconds, _ = (
        run.points(RETURN, "seconds")
        if SECONDS in run.curves
        else (np.full(len(curve.steps), math.nan), None)
    )
    return float(curve.steps[places[0]]), float(seconds[places[0]])


def _spread(values: Floats) -> tuple[float, float, float]:
    ordered = np.sort(values)  # np.median of infinities in an even number would be no number
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return float(middle), float(ordered[0]), float(ordered[-1])

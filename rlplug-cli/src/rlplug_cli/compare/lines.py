"""Learning curves with their intervals: the runs of each arm on one grid, as bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlplug_cli.compare.history import History
from rlplug_cli.compare.selection import Arm
from rlplug_cli.compare.statistics import Band, Center, Floats, band, draws

#: Bootstrap samples for each point of a curve; final scores use `Settings.reps`.
CURVE_REPS = 2000


@dataclass(frozen=True)
class Settings:
    """Settings of a comparison.

    Attributes:
        center: how a curve combines its runs.
        confidence: the confidence of intervals.
        reps: samples of the bootstrap.
        axis: `steps`, `seconds` or `updates`.
        points: the most points of a curve.
        smooth: window of the moving average of a curve, in points.
        checkpoint: the final score that probabilities of improvement use.
        targets: the target return by environment; "" is for all others.
        bounds: the returns that count as 0 and 1 by environment, to combine environments.
    """

    center: Center = "iqm"
    confidence: float = 0.95
    reps: int = 10_000
    axis: str = "steps"
    points: int = 200
    smooth: int = 1
    checkpoint: str = "last"
    targets: Mapping[str, float] | None = None
    bounds: Mapping[str, tuple[float, float]] | None = None


class Line(NamedTuple):
    """The curve of one arm, metric and environment over `x` `[T]`."""

    env: str
    metric: str
    label: str
    seeds: int
    x: Floats
    band: Band


def lines(
    arms: Sequence[Arm],
    metrics: Sequence[str],
    settings: Settings,
    running: bool = False,
) -> list[Line]:
    """Return the curve of each environment, metric and arm; without those that no run has recorded.

    With `running`, the unfinished runs of an arm with finished ones have a separate curve.
    """
    result = []
    for env in envs(arms):
        for metric in metrics:
            for arm in arms:
                runs = arm.on(env)
                drawn = runs_to_draw(runs)
                groups = {arm.label: drawn}
                if running:
                    groups[f"{arm.label}, running"] = [run for run in runs if run not in drawn]
                for label, group in groups.items():
                    result += _lines_of(env, metric, label, group, settings)
    return result


def _lines_of(
    env: str,
    metric: str,
    label: str,
    runs: Sequence[History],
    settings: Settings,
) -> list[Line]:
    """Return the curve of these runs in a list; an empty list if their curves do not overlap."""
    curves = [run.points(metric, settings.axis) for run in runs]
    curves = [curve for curve in curves if len(curve[0])]
    if not curves or min(x[-1] for x, _ in curves) < max(x[0] for x, _ in curves):
        return []
    return [_line(env, metric, label, curves, settings)]


def runs_to_draw(runs: Sequence[History]) -> Sequence[History]:
    """Return the runs of one arm for its curve: the finished ones, because an unfinished one would cut it short."""
    return [run for run in runs if run.is_finished] or runs


def envs(arms: Sequence[Arm]) -> list[str]:
    """Return the environments of all arms, in the order of their runs."""
    return list(dict.fromkeys(run.env for arm in arms for run in arm.runs))


def _line(
    env: str,
    metric: str,
    label: str,
    curves: Sequence[tuple[Floats, Floats]],
    settings: Settings,
) -> Line:
    x, values = common_grid(
        [(steps, moving_average(value, settings.smooth)) for steps, value in curves],
        settings.points,
    )
    (drawn,) = draws([len(values)], CURVE_REPS, np.random.default_rng(0))
    return Line(
        env,
        metric,
        label,
        seeds=len(values),
        x=x,
        band=band(values, settings.center, drawn, settings.confidence),
    )


def moving_average(values: Floats, window: int) -> Floats:
    """Return the mean of each value and those before it, up to `window` values, ignoring NaN."""
    if window == 1:
        return values
    padding = np.full(window - 1, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([padding, values]), window)
    present = ~np.isnan(windows)
    count = present.sum(1)
    return np.divide(
        windows.sum(1, where=present), count, out=np.full(len(values), np.nan), where=count > 0
    )


def common_grid(
    curves: Sequence[tuple[Floats, Floats]],
    points: int,
) -> tuple[Floats, Floats]:
    """Return overlapping curves as `x` `[T]` and values `[n, T]`, on the range that all of them cover.

    Curves with equal points keep them, thinned to at most `points`; others are interpolated.
    """
    first = curves[0][0]
    if all(np.array_equal(x, first) for x, _ in curves):
        chosen = np.unique(
            np.linspace(0, len(first) - 1, min(points, len(first))).round().astype(np.intp)
        )
        return first[chosen], np.stack([values[chosen] for _, values in curves])
    low = max(x[0] for x, _ in curves)
    high = min(x[-1] for x, _ in curves)
    x = np.unique(np.linspace(low, high, min(points, max(len(steps) for steps, _ in curves))))
    return x, np.stack([np.interp(x, steps, values) for steps, values in curves])

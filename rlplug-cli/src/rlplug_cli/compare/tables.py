"""Prints a comparison on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlplug_cli.compare.report import Report
from rlplug_cli.compare.results import Cost, Improvement, Score
from rlplug_cli.compare.statistics import Estimate
from rlplug_cli.render.live import duration
from rlplug_cli.render.tables import table

#: Columns of names and labels, which may wrap on a narrow terminal; numbers do not.
NAMES = ("ENVIRONMENT", "FINAL RETURN OF", "MORE LIKELY ABOVE", "BELOW", "ON", "BY")
#: Headers of the final scores and of the costs of a return.
SCORES = ("ENVIRONMENT", "FINAL RETURN OF", "CHECKPOINT", "SEEDS")
COSTS = (
    "ENVIRONMENT",
    "UNTIL A RETURN OF",
    "BY",
    "REACHED",
    "STEPS: MEDIAN (LEAST, MOST)",
    "TIME",
)


def text(comparison: Report) -> str:
    """Return final scores, probabilities of improvement, costs of a return and remarks as plain text."""
    share = f"{100 * comparison.settings.confidence:g} %"
    tables = [
        table(header, rows, optional=_optional_columns(header, rows), wrapped=NAMES)
        for header, rows in sections(comparison, share)
    ]
    return "\n\n".join(
        [*tables, "\n".join(f"note: {remark}" for remark in comparison.remarks)]
    ).rstrip()


def _optional_columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> list[str]:
    """Return the columns that a narrow terminal can leave out: a shared environment, then means, then seeds."""
    same = [
        title
        for title, *cells in zip(header, *rows, strict=True)
        if title in ("ENVIRONMENT", "ON") and len(set(cells)) == 1
    ]
    return [
        *same,
        *(title for title in header if title.startswith("MEAN")),
        *({"SEEDS"} & {*header}),
    ]


def sections(
    comparison: Report,
    share: str,
) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the tables with content, each as its header and its rows."""
    aggregates = [f"{how} [{share}]" for how in ("IQM", "MEAN", "MEDIAN")]
    all_tables = [
        ((*SCORES, *aggregates), [_score(entry) for entry in comparison.scores]),
        (
            ("MORE LIKELY ABOVE", "BELOW", f"PROBABILITY [{share}]", "ON"),
            [_improvement(entry) for entry in comparison.improvements],
        ),
        (COSTS, [_cost(entry) for entry in comparison.costs]),
    ]
    tables = []
    for header, rows in all_tables:
        columns = [
            position for position in range(len(header)) if any(row[position] for row in rows)
        ]
        if rows:
            filled_rows = [tuple(row[position] for position in columns) for row in rows]
            tables.append((tuple(header[position] for position in columns), filled_rows))
    return tables


def _score(score: Score) -> tuple[str, ...]:
    estimates = (score.estimates.get(how) for how in ("iqm", "mean", "median"))
    texts = (interval(estimate, number) if estimate else "" for estimate in estimates)
    return score.env, score.label, score.checkpoint, str(score.seeds), *texts


def _improvement(improvement: Improvement) -> tuple[str, ...]:
    envs = (
        improvement.envs[0]
        if len(improvement.envs) == 1
        else f"{len(improvement.envs)} environments"
    )
    return (
        improvement.better,
        improvement.worse,
        interval(improvement.probability, lambda value: f"{value:.2f}"),
        envs,
    )


def _cost(cost: Cost) -> tuple[str, ...]:
    steps = _spread(cost.steps, lambda value: f"{value:,.0f}")
    seconds = _spread(cost.seconds, duration)
    return (
        cost.env,
        f"{cost.target:g}",
        cost.label,
        f"{cost.reached} of {cost.seeds}",
        steps,
        seconds,
    )


def interval(estimate: Estimate, write: Callable[[float], str]) -> str:
    """Return a number with its interval."""
    return f"{write(estimate.value)} [{write(estimate.low)}, {write(estimate.high)}]"


def number(value: float) -> str:
    """Return a number with at most four digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _spread(
    values: tuple[float, float, float],
    write: Callable[[float], str],
) -> str:
    middle, least, most = (write(value) if math.isfinite(value) else "-" for value in values)
    return f"{middle} ({least}, {most})"

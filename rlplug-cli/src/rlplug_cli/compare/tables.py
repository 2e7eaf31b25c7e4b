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


def text(found: Report) -> str:
    """Return final scores, probabilities of improvement, costs of a return and remarks as plain text."""
    share = f"{100 * found.settings.confidence:g} %"
    parts = [
        table(header, rows, spared=_optional_columns(header, rows), wrapped=NAMES)
        for header, rows in sections(found, share)
    ]
    return "\n\n".join([*parts, "\n".join(f"note: {remark}" for remark in found.remarks)]).rstrip()


def _optional_columns(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> list[str]:
    """Return the columns that a narrow terminal can leave out: an environment that all rows share, then means."""
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
    found: Report,
    share: str,
) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the tables with content, each as its header and its rows."""
    aggregates = [f"{how} [{share}]" for how in ("IQM", "MEAN", "MEDIAN")]
    every = [
        ((*SCORES, *aggregates), [_score(one) for one in found.scores]),
        (
            ("MORE LIKELY ABOVE", "BELOW", f"PROBABILITY [{share}]", "ON"),
            [_improvement(one) for one in found.improvements],
        ),
        (COSTS, [_cost(one) for one in found.costs]),
    ]
    tables = []
    for header, rows in every:
        columns = [n for n in range(len(header)) if any(row[n] for row in rows)]
        if rows:
            own = [tuple(row[n] for n in columns) for row in rows]
            tables.append((tuple(header[n] for n in columns), own))
    return tables


def _score(one: Score) -> tuple[str, ...]:
    found = (one.estimates.get(how) for how in ("iqm", "mean", "median"))
    said = (interval(estimate, number) if estimate else "" for estimate in found)
    return one.env, one.label, one.checkpoint, str(one.seeds), *said


def _improvement(one: Improvement) -> tuple[str, ...]:
    envs = one.envs[0] if len(one.envs) == 1 else f"{len(one.envs)} environments"
    return one.better, one.worse, interval(one.probability, lambda share: f"{share:.2f}"), envs


def _cost(one: Cost) -> tuple[str, ...]:
    steps = _spread(one.steps, lambda value: f"{value:,.0f}")
    seconds = _spread(one.seconds, duration)
    return one.env, f"{one.target:g}", one.label, f"{one.reached} of {one.seeds}", steps, seconds


def interval(one: Estimate, write: Callable[[float], str]) -> str:
    """Return a number with its interval."""
    return f"{write(one.value)} [{write(one.low)}, {write(one.high)}]"


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

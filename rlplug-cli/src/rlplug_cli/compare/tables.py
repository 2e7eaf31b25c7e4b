"""A comparison on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rlplug_cli.compare.report import Report
from rlplug_cli.compare.results import Cost, Improvement, Score
from rlplug_cli.compare.statistics import Estimate
from rlplug_cli.render.live import duration
from rlplug_cli.render.tables import table

#: The columns of names and labels, which may go on in the next line of a narrow terminal; numbers stay whole.
NAMES = ("ENVIRONMENT", "FINAL RETURN OF", "MORE LIKELY ABOVE", "BELOW", "ON", "BY")


def text(found: Report) -> str:
    """Final scores, probabilities of improvement, costs of a return, and remarks, as tables of plain text."""
    share = f"{100 * found.settings.confidence:g} %"
    parts = [
        table(header, rows, spared=_spared(header, rows), wrapped=NAMES)
        for header, rows in sections(found, share)
    ]
    return "\n\n".join([*parts, "\n".join(f"note: {remark}" for remark in found.remarks)]).rstrip()


def _spared(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns that a narrow terminal goes without: an environment that is the same in all rows, then means."""
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


def sections(found: Report, share: str) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The tables that there is something for, each as its header and its rows."""
    every = [
        (
            (
                "ENVIRONMENT",
                "FINAL RETURN OF",
                "CHECKPOINT",
                "SEEDS",
                *(f"{how} [{share}]" for how in ("IQM", "MEAN", "MEDIAN")),
            ),
            [_score(one) for one in found.scores],
        ),
        (
            ("MORE LIKELY ABOVE", "BELOW", f"PROBABILITY [{share}]", "ON"),
            [_improvement(one) for one in found.improvements],
        ),
        (
            (
                "ENVIRONMENT",
                "UNTIL A RETURN OF",
                "BY",
                "REACHED",
                "STEPS: MEDIAN (LEAST, MOST)",
                "TIME",
            ),
            [_cost(one) for one in found.costs],
        ),
    ]
    return [_without_empty(header, rows) for header, rows in every if rows]


def _without_empty(
    header: tuple[str, ...], rows: list[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns in which a row has something."""
    kept = [number for number in range(len(header)) if any(row[number] for row in rows)]
    return tuple(header[number] for number in kept), [
        tuple(row[number] for number in kept) for row in rows
    ]


def _score(one: Score) -> tuple[str, ...]:
    found = (one.estimates.get(how) for how in ("iqm", "mean", "median"))
    said = (interval(estimate, number) if estimate else "" for estimate in found)
    return one.env, one.label, one.checkpoint, str(one.seeds), *said


def _improvement(one: Improvement) -> tuple[str, ...]:
    envs = one.envs[0] if len(one.envs) == 1 else f"{len(one.envs)} environments"
    return one.better, one.worse, interval(one.probability, lambda share: f"{share:.2f}"), envs


def _cost(one: Cost) -> tuple[str, ...]:
    steps, seconds = (
        _spread(values, said) for values, said in ((one.steps, _whole), (one.seconds, duration))
    )
    return one.env, f"{one.target:g}", one.label, f"{one.reached} of {one.seeds}", steps, seconds


def interval(one: Estimate, said: Callable[[float], str]) -> str:
    """A number with the interval around it."""
    return f"{said(one.value)} [{said(one.low)}, {said(one.high)}]"


def number(value: float) -> str:
    """Four figures, and not more of them than a return needs."""
    return (
        f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.3g}"
    )


def _spread(values: tuple[float, float, float], said: Callable[[float], str]) -> str:
    middle, least, most = (said(value) if math.isfinite(value) else "-" for value in values)
    return f"{middle} ({least}, {most})"


def _whole(value: float) -> str:
    return f"{value:,.0f}"

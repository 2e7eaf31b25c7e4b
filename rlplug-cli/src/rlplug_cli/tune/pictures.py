"""Pictures of a study: the value of each trial, and the importance of each option."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.compare.figures import COLORS, STYLE
from rlplug_core.config import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_history(
    path: Path,
    trials: Sequence[Mapping[str, Any]],
    objective: str,
) -> None:
    """Draw the value of every trial, pruned ones included, and the best value so far."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.subplots()
        for state, marker, color in (("complete", "o", COLORS[0]), ("pruned", "x", "#9aa0a6")):
            numbers, values = _points(trials, state)
            if numbers:
                axes.plot(numbers, values, marker, color=color, markersize=4, label=state)
        numbers, values = _points(trials, "complete")
        best = list(accumulate(values, max))
        axes.step(numbers, best, where="post", color=COLORS[1], label="best so far")
        axes.set_xlabel("trial")
        axes.set_ylabel(
            "env steps/s" if objective == "steps_per_second" else f"return ({objective})"
        )
        axes.grid(alpha=0.25, linewidth=0.6)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        _save(figure, path)


def _points(
    trials: Sequence[Mapping[str, Any]],
    state: str,
) -> tuple[list[int], list[float]]:
    """Return the numbers and the values of the trials in a state."""
    matching = [trial for trial in trials if trial["state"] == state and trial["value"] is not None]
    return [trial["number"] for trial in matching], [trial["value"] for trial in matching]


def draw_importance(path: Path, shares: Mapping[str, float]) -> None:
    """Draw a bar for each option, the most important one at the top."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.8 + 0.35 * len(shares)), layout="constrained")
        axes = figure.subplots()
        rows = sorted(shares.items(), key=lambda item: item[1])
        names = [name for name, _ in rows]
        axes.barh(names, [share for _, share in rows], color=COLORS[0], height=0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("importance (PED-ANOVA)")
        axes.grid(axis="x", alpha=0.25, linewidth=0.6)
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG that replaces the old file; a link at `path` is not followed."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    replace_file(path, buffer.getvalue())

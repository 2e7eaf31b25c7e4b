"""Pictures of a study: what each trial came to, and which options mattered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlplug_cli.compare.figures import COLORS, STYLE


def history(path: Path, trials: Sequence[Mapping[str, Any]], objective: str) -> None:
    """Every trial's value, those that were pruned where they were, and the best so far."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        at = figure.subplots()
        for state, marker, color in (("complete", "o", COLORS[0]), ("pruned", "x", "#9aa0a6")):
            points = [
                (one["number"], one["value"])
                for one in trials
                if one["state"] == state and one["value"] is not None
            ]
            if points:
                at.plot(*zip(*points, strict=True), marker, color=color, markersize=4, label=state)
        whole = [(one["number"], one["value"]) for one in trials if one["state"] == "complete"]
        best = [max(value for _, value in whole[: n + 1]) for n in range(len(whole))]
        at.step(
            [number for number, _ in whole],
            best,
            where="post",
            color=COLORS[1],
            label="best so far",
        )
        at.set_xlabel("trial")
        at.set_ylabel(f"return ({objective})")
        at.grid(alpha=0.25, linewidth=0.6)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, dpi=150)


def importance(path: Path, shares: Mapping[str, float]) -> None:
    """A bar for each option, the one that mattered most on top."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.8 + 0.35 * len(shares)), layout="constrained")
        at = figure.subplots()
        ordered = sorted(shares.items(), key=lambda item: item[1])
        at.barh(
            [name for name, _ in ordered],
            [share for _, share in ordered],
            color=COLORS[0],
            height=0.6,
        )
        at.set_xlim(0, 1)
        at.set_xlabel("importance (PED-ANOVA)")
        at.grid(axis="x", alpha=0.25, linewidth=0.6)
        figure.savefig(path, dpi=150)

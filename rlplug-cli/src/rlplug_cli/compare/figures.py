"""Draws curves as pictures: PNG, SVG or PDF by the file's ending."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlplug_cli.compare.lines import Line, Settings
from rlplug_cli.output import writing_to
from rlplug_core.errors import UsageError, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colors that color-blind people can distinguish (Okabe and Ito), and strokes for more lines than colors.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STROKES = ("-", "--", ":", "-.")
TITLES = {"steps": "env steps", "seconds": "seconds", "updates": "updates"}
#: File endings of pictures.
ENDINGS = (".png", ".svg", ".pdf")
#: SVG keeps text as text, and the same report gives the same file.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlplug",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def save(path: Path, lines: Sequence[Line], settings: Settings) -> None:
    """Draw lines into a file, a panel per environment and metric.

    Raises:
        UsageError: the file's ending is not in `ENDINGS`, or it cannot be written.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: a picture's name ends in {', '.join(ENDINGS)}")
    with writing_to(path):
        _write(path, lines, settings, path.suffix[1:].lower())


def svg(lines: Sequence[Line], settings: Settings) -> str:
    """Return the picture as an `<svg>` element for a page."""
    file = io.BytesIO()
    _write(file, lines, settings, "svg")
    text = file.getvalue().decode()
    return text[text.index("<svg") :]


def _write(
    file: Any,
    lines: Sequence[Line],
    settings: Settings,
    kind: str,
) -> None:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        metadata = {"Date": None} if kind == "svg" else None
        figure(lines, settings).savefig(file, format=kind, dpi=150, metadata=metadata)


def figure(lines: Sequence[Line], settings: Settings) -> Figure:
    """Return a figure with a panel per environment (at most three columns) and metric, and one legend."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((line.env, line.metric) for line in lines))
    labels = list(dict.fromkeys(line.label for line in lines))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    legend_rows = -(-len(labels) // columns)
    drawn = Figure(
        figsize=(1.2 + 4.0 * columns, 2.7 * rows + 0.5 + 0.2 * legend_rows), layout="constrained"
    )
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for panel, ax in zip(panels, axes, strict=False):
        _panel(ax, [line for line in lines if (line.env, line.metric) == panel], labels, settings)
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    handles = {line.get_label(): line for ax in axes for line in ax.get_lines()}
    drawn.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False
    )
    return drawn


def _panel(
    ax: Axes,
    lines: Sequence[Line],
    labels: Sequence[str],
    settings: Settings,
) -> None:
    for line in lines:
        number = labels.index(line.label)
        color = COLORS[number % len(COLORS)]
        stroke = STROKES[number // len(COLORS) % len(STROKES)]
        ax.plot(
            line.x, line.band.value, stroke, color=color, linewidth=1.5, label=_text(line.label)
        )
        if line.seeds > 1:
            ax.fill_between(
                line.x, line.band.low, line.band.high, color=color, alpha=0.18, linewidth=0
            )
    ax.set_title(_text(lines[0].env), fontsize=10)
    ax.set_xlabel(TITLES[settings.axis])
    ax.set_ylabel(_text(lines[0].metric))
    ax.xaxis.set_major_formatter(_thousands)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.margins(x=0)


def _text(name: str) -> str:
    """Return a name for matplotlib: no formulas between dollar signs, no unprintable characters."""
    return plain(name).replace("$", r"\$")


def _thousands(value: float, position: float | None = None) -> str:
    """Return a number as `50k` or `1.5M`; small numbers unchanged."""
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{sign}"
    return f"{value:g}"

"""`rlplug plot RUN…`: curves of runs as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rlplug_cli.commands.compare import common_options
from rlplug_cli.compare.words import parse_label
from rlplug_cli.output import echo
from rlplug_cli.shared_options import FILE


@click.command("plot")
@common_options
@click.option(
    "--metric",
    default="eval/return_mean",
    metavar="NAME,…",
    help="Metrics to draw, one panel each  [eval/return_mean]",
)
@click.option(
    "--image",
    type=FILE,
    default="curves.png",
    help="A .png, .svg or .pdf file  [curves.png]",
)
def command(
    runs: tuple[str, ...],
    out: Path,
    metric: str,
    label: str | None,
    axis: str,
    smooth: int,
    center: Any,
    confidence: float,
    points: int,
    image: Path,
) -> None:
    """Draw curves of runs: by env steps, seconds or updates, several metrics side by side.

    RUN is the path or the name of a run, GROUP the first characters of a group, SWEEP a directory of runs.
    """
    from rlplug_cli.compare.figures import save
    from rlplug_cli.compare.lines import Settings, lines
    from rlplug_cli.compare.report import missing_metrics_error, read_arms

    metrics = [name.strip() for name in metric.split(",") if name.strip()]
    settings = Settings(center, confidence, axis=axis, points=points, smooth=smooth)
    arms, remarks = read_arms(runs, out, metrics, parse_label(label), settings)
    drawn = lines(arms, metrics, settings)
    for name in metrics:
        if not any(line.metric == name for line in drawn):
            raise missing_metrics_error(arms, [name])
    save(image, drawn, settings)
    for remark in remarks:
        echo(f"note: {remark}")
    echo(f"{len(drawn)} curves in {image}")

"""`rlplug compare RUN…`: curves and statistics of runs over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.compare.words import bounds, goals, parse_label
from rlplug_cli.completion import runs_and_sweeps
from rlplug_cli.output import echo, emit, write_text
from rlplug_cli.shared_options import FILE, all_of, runs_directory_option
from rlplug_core.errors import UsageError

if TYPE_CHECKING:
    from rlplug_cli.compare.report import Report
    from rlplug_cli.compare.serve import LiveServer


#: The argument and the options that `compare` and `plot` share.
common_options = all_of(
    [
        click.argument(
            "runs",
            nargs=-1,
            required=True,
            metavar="RUN|GROUP|SWEEP…",
            shell_complete=runs_and_sweeps,
        ),
        click.option(
            "--label",
            metavar="OPTION,…",
            help="Options to label and group runs by  [the algorithm and differing options]",
        ),
        click.option(
            "--x",
            "axis",
            type=click.Choice(["steps", "seconds", "updates"]),
            default="steps",
            help="The x axis of curves  [steps]",
        ),
        click.option(
            "--smooth",
            type=click.IntRange(1),
            default=1,
            metavar="POINTS",
            help="Average each value with those before it  [1]",
        ),
        click.option(
            "--center",
            type=click.Choice(["iqm", "mean"]),
            default="iqm",
            help="How a line combines its seeds  [iqm]",
        ),
        click.option(
            "--confidence",
            type=click.FloatRange(0, 1, True, True),
            default=0.95,
            help="Confidence of intervals  [0.95]",
        ),
        click.option(
            "--points",
            type=click.IntRange(2),
            default=200,
            help="Largest number of points of a curve  [200]",
        ),
        runs_directory_option,
    ]
)


@click.command("compare")
@common_options
@click.option(
    "--metric",
    default="eval/return_mean",
    help="The metric of the curves  [eval/return_mean]",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="[ENV=]RETURN",
    help="Also report the steps and time until this return.",
)
@click.option(
    "--normalize",
    multiple=True,
    metavar="ENV=LOW:HIGH",
    help="Returns that count as 0 and 1 over all environments.",
)
@click.option(
    "--checkpoint",
    type=click.Choice(["last", "best"]),
    default="last",
    help="The checkpoint of the probabilities  [last]",
)
@click.option(
    "--bootstrap",
    "reps",
    type=click.IntRange(100),
    default=10_000,
    help="Redraws for final scores  [10000]",
)
@click.option(
    "--image",
    type=FILE,
    help="Write the curves to a .png, .svg or .pdf file.",
)
@click.option(
    "--html",
    type=FILE,
    help="Write everything to one self-contained page.",
)
@click.option(
    "--csv",
    type=FILE,
    help="Write the scores to a CSV file; - is stdout.",
)
@click.option(
    "--json",
    is_flag=True,
    help="Write everything as JSON to stdout.",
)
@click.option(
    "--serve",
    is_flag=True,
    help="Show the comparison as a page that refreshes itself while runs train, on this machine only.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port of --serve on 127.0.0.1; 0 is a free one  [0]",
)
@click.option(
    "--every",
    type=click.FloatRange(1, 3600),
    default=5,
    metavar="SECONDS",
    help="Seconds between two refreshes of --serve  [5]",
)
def command(
    runs: tuple[str, ...],
    out: Path,
    metric: str,
    targets: tuple[str, ...],
    normalize: tuple[str, ...],
    label: str | None,
    axis: str,
    smooth: int,
    center: Any,
    confidence: float,
    points: int,
    checkpoint: str,
    reps: int,
    image: Path | None,
    html: Path | None,
    csv: Path | None,
    json: bool,
    serve: bool,
    port: int,
    every: float,
) -> None:
    """Compare runs over seeds: curves with intervals, final scores, probabilities of improvement.

    RUN is the path or the name of a run or the source of a shared agent, GROUP the first characters of a group,
    SWEEP a directory of runs. Runs that differ only in seed and environment are combined.
    """
    from rlplug_cli.compare.lines import Settings
    from rlplug_cli.compare.report import report

    if json and str(csv) == "-":
        raise UsageError(
            "--json and --csv - both write to stdout; leave one out, or give --csv a file"
        )
    settings = Settings(
        center=center,
        confidence=confidence,
        reps=reps,
        axis=axis,
        points=points,
        smooth=smooth,
        checkpoint=checkpoint,
        targets=goals(targets),
        bounds=bounds(normalize),
    )
    if serve:
        _refuse_outputs(image, html, csv, json)
        from rlplug_cli.compare.live import live_server

        _serve(live_server(runs, out, metric, parse_label(label), settings, port=port, every=every))
        return
    comparison = report(runs, out, (metric,), parse_label(label), settings)
    _write(comparison, " ".join(runs), image, html, csv)
    _print(comparison, csv, json)


def _refuse_outputs(*outputs: object) -> None:
    """Refuse the options that write a finished comparison together with --serve."""
    if any(outputs):
        raise UsageError(
            "--serve shows a page until Ctrl-C; leave out --image, --html, --csv and --json, or run compare again "
            "with them"
        )


def _serve(server: LiveServer) -> None:
    """Serve the page until Ctrl-C."""
    with server:
        echo(f"live comparison: {server.address}  (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            echo("")


def _write(
    comparison: Report,
    title: str,
    image: Path | None,
    html: Path | None,
    csv: Path | None,
) -> None:
    from rlplug_cli.compare.report import as_csv

    if image is not None:
        from rlplug_cli.compare.figures import save

        save(image, comparison.lines, comparison.settings)
    if html is not None:
        from rlplug_cli.compare.page import page

        write_text(html, page(comparison, title))
    if csv is not None and str(csv) != "-":
        write_text(csv, as_csv(comparison))


def _print(comparison: Report, csv: Path | None, json: bool) -> None:
    from rlplug_cli.compare.report import as_csv, as_json
    from rlplug_cli.compare.tables import text

    if json:
        emit(as_json(comparison))
    elif csv is not None and str(csv) == "-":
        emit(as_csv(comparison).rstrip("\n"))
    else:
        echo(text(comparison))

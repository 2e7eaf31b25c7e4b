"""`rlplug play RUN`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlplug_cli.arguments import TakesArguments, single_env_arguments
from rlplug_cli.commands.evaluate import sentence
from rlplug_cli.completion import runs
from rlplug_cli.evaluation_options import condition_options
from rlplug_cli.notes import short_path
from rlplug_cli.output import echo
from rlplug_cli.shared_options import FILE, FOLDER
from rlplug_cli.trust import open_run, trust_option

if TYPE_CHECKING:
    from rlplug_core.runs import Run


@click.command("play", cls=TakesArguments)
@click.argument(
    "run",
    shell_complete=runs,
)
@click.option(
    "--video",
    type=FILE,
    help="Write a video: FILE.mp4, FILE.webp or FILE.gif.",
)
@click.option(
    "--frames", type=FOLDER, help="Write frames as numbered PNGs into an empty directory."
)
@click.option(
    "--sheet", type=FILE, help="Write a PNG with frames of the best and the worst episode."
)
@click.option(
    "--every",
    type=click.IntRange(1),
    default=1,
    help="Use every N-th frame of an episode  [1]",
)
@click.option(
    "--fps",
    type=float,
    help="The video's frames per second  [the environment's]",
)
@click.option(
    "--episodes",
    type=click.IntRange(1),
    default=1,
    help="Number of episodes, one after the other  [1]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Seed of the environment; evaluate runs episodes in parallel, so only the first episode is the same  "
    "[the run's final evaluation's]",
)
@condition_options("Play")
@trust_option
def command(
    run: str,
    video: Path | None,
    frames: Path | None,
    sheet: Path | None,
    every: int,
    fps: float | None,
    episodes: int,
    seed: int | None,
    checkpoint: str,
    stochastic: bool,
    epsilon: float,
    env: str | None,
    wrap: list[str] | None,
    trust: bool,
) -> None:
    """Watch a checkpoint of RUN in a window; without a display, write a video.

    RUN is a path, a name in runs/, an export, or the source of a shared agent, such as hub:OWNER/NAME.
    """
    opened_run = open_run(run, trust)
    if video is None and frames is None and sheet is None:
        video = _default_video(opened_run, checkpoint)
    result = opened_run.play(
        episodes,
        seed,
        checkpoint,
        video=video,
        frames=frames,
        every=every,
        fps=fps,
        sheet=sheet,
        stochastic=stochastic,
        epsilon=epsilon,
        env=env,
        arguments=single_env_arguments(click.get_current_context()),
        wrap=wrap,
    )
    echo(sentence(result, "greedy" if not (stochastic or epsilon) else "played"))
    for noun, file in (("film", video), ("frames", frames), ("sheet", sheet)):
        if file is not None:
            echo(f"{noun:<7} {short_path(file)}")


def _default_video(run: Run, checkpoint: str) -> Path | None:
    """Return the default path of a video, or None if a window can open."""
    from rlplug_core.films import usual_suffix
    from rlplug_core.runs import has_display

    if has_display():
        return None
    if run.directory.is_export:  # its folder may be the cache, whose names end with a hash
        name = re.sub(r"-[0-9a-f]{16}$", "", run.name)
        return Path(f"{name}{usual_suffix()}")
    return run.path / "videos" / f"play-{checkpoint}{usual_suffix()}"

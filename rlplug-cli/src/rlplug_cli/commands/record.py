"""`rlplug record RUN`."""

from __future__ import annotations

from pathlib import Path

import click

from rlplug_cli.arguments import TakesArguments, single_env_arguments
from rlplug_cli.completion import runs
from rlplug_cli.evaluation_options import condition_options
from rlplug_cli.notes import short_path
from rlplug_cli.output import echo
from rlplug_cli.trust import open_run, trust_option
from rlplug_core.config import figures


@click.command("record", cls=TakesArguments)
@click.argument(
    "run",
    shell_complete=runs,
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The new file, FILE.npz."
)
@click.option(
    "--steps", type=click.IntRange(1), default=100_000, help="Number of environment steps  [100000]"
)
@click.option(
    "--num-envs", type=click.IntRange(1), default=1, help="Environments stepped together  [1]"
)
@click.option(
    "--seed", type=click.IntRange(0), help="The environments' seed  [the run's final evaluation's]"
)
@condition_options("Record in")
@trust_option
def command(
    run: str,
    output: Path,
    steps: int,
    num_envs: int,
    seed: int | None,
    checkpoint: str,
    stochastic: bool,
    epsilon: float,
    env: str | None,
    wrap: list[str] | None,
    trust: bool,
) -> None:
    """Play a checkpoint of RUN, and write its transitions to a data set for offline learning."""
    arguments = single_env_arguments(click.get_current_context())
    recording = open_run(run, trust).record(
        output,
        steps,
        num_envs=num_envs,
        seed=seed,
        checkpoint=checkpoint,
        stochastic=stochastic,
        epsilon=epsilon,
        env=env,
        arguments=arguments,
        wrap=wrap,
    )
    episodes = len(recording.returns)
    mean = f", mean return {figures(sum(recording.returns) / episodes)}" if episodes else ""
    echo(
        f"data set {short_path(output)}: {len(recording.dataset):,} transitions, {episodes:,} whole episodes{mean}"
    )
    echo(f"sha256   {recording.dataset.sha256}")

"""`rlplug evaluate RUN`."""

from __future__ import annotations

import json as json_module
import os

import click

from rlplug_cli.runs import located


@click.command("evaluate")
@click.argument("run")
@click.option("--episodes", type=click.IntRange(1), default=100, help="How many greedy episodes  [100]")
@click.option("--seed", type=click.IntRange(0), help="The environments' seed  [the run's verdict's]")
@click.option("--checkpoint", default="best", help="best, final or latest  [best]")
@click.option("--json", is_flag=True, help="Write the result, with every return, as JSON.")
def command(run: str, episodes: int, seed: int | None, checkpoint: str, json: bool) -> None:
    """Play greedy episodes with a checkpoint of RUN, a path or a name in runs/."""
    path = located(run)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # read once, when numpy is imported
    from rlplug_core.run import Run
    from rlplug_core.rundir import RunDirectory

    result = Run(RunDirectory.open(path)).evaluate(episodes, seed, checkpoint)
    if json:
        whole = {
            "run": str(path), "checkpoint": checkpoint, "episodes": result.episodes, "seed": seed,
            "return_mean": result.mean, "return_std": result.std, "return_min": result.minimum,
            "return_max": result.maximum, "length_mean": result.length_mean,
            "returns": [float(one) for one in result.returns],
        }  # fmt: skip
        click.echo(json_module.dumps(whole, indent=1))
        return
    click.echo(
        f"mean return {result.mean:,.1f} ± {result.std:,.1f} over {result.episodes} greedy episodes "
        f"(min {result.minimum:,.1f}, max {result.maximum:,.1f}), mean length {result.length_mean:,.1f}"
    )

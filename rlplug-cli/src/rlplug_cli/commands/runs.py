"""`rlplug runs`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import click

from rlplug_cli.listing import table
from rlplug_cli.render import number
from rlplug_cli.runs import directories, summary


@click.command("runs")
@click.option("--out", type=click.Path(path_type=Path), default="runs", help="Where the run directories are  [runs]")
@click.option("--json", is_flag=True, help="Write everything as JSON.")
def command(out: Path, json: bool) -> None:
    """List the runs in a directory, oldest first, with their status, steps and best evaluation."""
    found = [summary(path) for path in directories(out)]
    if json:
        click.echo(json_module.dumps(found, indent=1))
    elif not found:
        click.echo(f"no runs in {out}/; 'rlplug run ALGORITHM ENV' makes one")
    else:
        click.echo(table(("RUN", "STATUS", "ALGORITHM", "ENVIRONMENT", "SEED", "STEPS", "BEST"), map(_line, found)))


def _line(run: dict[str, Any]) -> tuple[str, ...]:
    steps = f"{run['steps']:,}" + (f"/{run['total_steps']:,}" if run["total_steps"] else "")
    return run["name"], run["status"], run["algorithm"], run["env"], str(run["seed"]), steps, number(run["best"])

"""`rlplug resume RUN`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.runs import located

if TYPE_CHECKING:
    from rlplug_core.run import Run


@click.command("resume")
@click.argument("run")
@click.option("--steps", type=click.IntRange(1), metavar="INTEGER", help="Where to end instead, in env steps.")
@click.option("--rescale", is_flag=True, help="Stretch the schedules to --steps; without it they keep the old total.")
@click.option("--json", is_flag=True, help="Write the result as JSON to stdout, progress to stderr.")
def command(run: str, steps: int | None, rescale: bool, json: bool) -> None:
    """Go on with RUN, a path or a name in runs/, from its newest readable checkpoint."""
    path = located(run)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # read once, when numpy is imported
    from rlplug_cli.training import shown

    def work(watch: Callable[[Any], None]) -> Run:
        from rlplug_core.run import resume

        return resume(path, total_steps=steps, rescale=rescale, watch=watch)

    shown(f"resuming {path.name}", work, json)

"""`rlplug push RUN DESTINATION`."""

from __future__ import annotations

import click

from rlplug_cli.completion import runs
from rlplug_cli.evaluation_options import checkpoint_option
from rlplug_cli.output import echo
from rlplug_cli.trust import open_run, trust_option


@click.command("push")
@click.argument(
    "run",
    shell_complete=runs,
)
@click.argument(
    "destination",
)
@checkpoint_option
@click.option(
    "--film",
    is_flag=True,
    help="Also share a film of one episode, which the card shows.",
)
@trust_option
def command(
    run: str,
    destination: str,
    checkpoint: str,
    film: bool,
    trust: bool,
) -> None:
    """Share the agent of RUN, a run or an export: policy, card, learning curve and the command that trains it again.

    DESTINATION is a new folder, https://HOST/FOLDER (by PUT), hub:OWNER/NAME or mlflow:NAME.
    """
    if destination.startswith("mlflow:"):
        from rlplug_cli.mlflow.store import apply_settings, prepare, tracking_uri

        apply_settings()
        prepare(tracking_uri())
    opened_run = open_run(run, trust)
    from rlplug_core.runs import is_source, push

    pushed = push(opened_run, destination, checkpoint, film)
    echo(f"pushed   {pushed.source}")
    echo(f"get it   rlplug pull {pushed.source}")
    if is_source(pushed.source):
        echo(f"pinned   {pushed.source}#sha256={pushed.sha256}")

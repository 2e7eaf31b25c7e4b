"""`rlplug sync RUN`."""

from __future__ import annotations

from contextlib import closing

import click

from rlplug_cli.completion import runs
from rlplug_cli.output import echo
from rlplug_core.errors import RlplugError, plain
from rlplug_core.runs import find_run, shell_word


@click.command("sync")
@click.argument(
    "run",
    shell_complete=runs,
)
def command(run: str) -> None:
    """Send the missing records of RUN, a path or a name in runs/, to MLflow."""
    from rlplug_cli.mlflow.mirror import Mirror
    from rlplug_core.runs import RunDirectory

    path = find_run(run).absolute()
    RunDirectory(path).require_run()
    with closing(Mirror(path)) as mirror:
        try:
            mirror.send_rest()
            mirror.check_store()
        except RlplugError:
            raise
        except Exception as error:  # SQLAlchemy, requests and plugins each raise their own errors
            message = plain(str(error), 300)
            uri = mirror.state.tracking_uri
            raise RlplugError(
                f"cannot reach MLflow at {uri}: {message}; repeat 'rlplug sync {shell_word(run)}' later"
            ) from error
    echo(
        f"sent {mirror.records:,} records; all of this run is in MLflow at {mirror.state.tracking_uri}"
    )

"""`rlplug sync RUN`."""

from __future__ import annotations

import click

from rlplug_cli.completion import runs
from rlplug_cli.lookup import find_run
from rlplug_cli.output import echo
from rlplug_core.errors import RlplugError, plain
from rlplug_core.runs.files import shell_word


@click.command("sync")
@click.argument(
    "run",
    shell_complete=runs,
)
def command(run: str) -> None:
    """Send to MLflow what is missing there of RUN, a path or a name in runs/."""
    from rlplug_cli.mlflow.mirror import Mirror
    from rlplug_core.runs.directory import RunDirectory

    path = find_run(run).absolute()
    mirror = Mirror(path)
    try:
        while mirror.send():
            pass
        if not RunDirectory(path).running():
            mirror.conclude()
    except RlplugError:
        raise
    except (
        Exception
    ) as error:  # a store is SQLAlchemy's, requests' or a plugin's: each has errors of its own
        said = plain(str(error), 300)
        uri = mirror.state.tracking_uri
        raise RlplugError(
            f"MLflow at {uri} takes nothing: {said}; repeat 'rlplug sync {shell_word(run)}' later"
        ) from error
    finally:
        mirror.close()
    echo(
        f"sent {mirror.records:,} records; all of this run is in MLflow at {mirror.state.tracking_uri}"
    )

"""`rlplug resume RUN`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.commands.run import owners_of
from rlplug_cli.completion import runs
from rlplug_cli.parameters import PositiveInt
from rlplug_cli.shared_options import json_option
from rlplug_cli.threads import one_thread
from rlplug_cli.trust import confirm_trust, trust_option
from rlplug_core.config import RunOptions, schema_of
from rlplug_core.errors import UsageError
from rlplug_core.runs import find_run

if TYPE_CHECKING:
    from rlplug_core.runs import Run


class Resume(click.Command):
    """The command `resume`; its error about an option of training names `rlplug run --init`, which accepts it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            flag = error.option_name
            known = {option.name for option in schema_of(RunOptions)}
            if flag.lstrip("-").replace("-", "_") in known or owners_of(flag):
                raise UsageError(
                    f"a run keeps its options, so resume has no '{flag}'; to start a new run from its weights: "
                    f"rlplug run ALGORITHM ENV --init RUN {flag} …"
                ) from error
            raise


@click.command("resume", cls=Resume)
@click.argument(
    "run",
    shell_complete=runs,
)
@click.option(
    "--total-timesteps",
    type=PositiveInt(),
    metavar="INTEGER",
    help="The new total of env steps.",
)
@click.option(
    "--rescale",
    is_flag=True,
    help="Stretch schedules to --total-timesteps; by default they keep the old total.",
)
@click.option(
    "--until",
    type=PositiveInt(),
    metavar="INTEGER",
    help="Pause at this env step; the next resume continues.",
)
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="Show no progress, only the result.",
)
@json_option
@click.option(
    "--on",
    metavar="PLACE",
    help="Where its actors run now: local, ray, ray://HOST:PORT  [as before]",
)
@trust_option
def command(
    run: str,
    total_timesteps: int | None,
    rescale: bool,
    until: int | None,
    quiet: bool,
    json: bool,
    on: str | None,
    trust: bool,
) -> None:
    """Continue RUN, a path or a name in runs/, from its newest readable checkpoint."""
    path = find_run(run)
    one_thread()
    trust = confirm_trust(path, trust)
    from rlplug_cli.mlflow import episodes
    from rlplug_cli.training import train_and_report

    def work(watch: Callable[[Any], None]) -> Run:
        from rlplug_core.runs import resume

        return resume(
            path,
            total_timesteps=total_timesteps,
            rescale=rescale,
            watch=watch,
            hooks=[episodes],
            trust=trust,
            on=on,
            until=until,
        )

    train_and_report(f"resuming {path.name}", work, json, quiet)

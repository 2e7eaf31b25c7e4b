"""`rlplug reproduce RUN`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.completion import runs
from rlplug_cli.notes import short_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.live import display
from rlplug_cli.shared_options import json_option
from rlplug_cli.threads import one_thread
from rlplug_cli.trust import confirm_trust, trust_option
from rlplug_core.runs import find_run

if TYPE_CHECKING:
    from rlplug_core.runs import Reproduction


@click.command("reproduce")
@click.argument(
    "run",
    shell_complete=runs,
)
@click.option(
    "--name",
    help="The new run directory's name  [RUN-again]",
)
@json_option
@trust_option
@click.pass_context
def command(
    ctx: click.Context,
    run: str,
    name: str | None,
    json: bool,
    trust: bool,
) -> None:
    """Train RUN again from its record and compare the bits; the exit code is 1 if they differ."""
    path = find_run(run)
    one_thread()
    trust = confirm_trust(path, trust)
    from rlplug_core.runs import reproduce

    with display(f"reproducing {path.name}", sys.stderr if json else sys.stdout) as watch:
        reproduction = reproduce(path, name, watch, trust)
    if json:
        echo_json(_plain(reproduction))
    else:
        echo(_text(reproduction))
    ctx.exit(0 if reproduction.same else 1)


def _plain(reproduction: Reproduction) -> dict[str, Any]:
    return {
        "run": str(reproduction.run.path),
        "same": reproduction.same,
        "differs": reproduction.differs,
        "surroundings": reproduction.surroundings,
    }


def _text(reproduction: Reproduction) -> str:
    lines = [f"run      {short_path(reproduction.run.path)}"]
    lines += (
        ["same     the final weights and every recorded number, bit for bit"]
        if reproduction.same
        else []
    )
    lines += [f"differs  {sentence}" for sentence in reproduction.differs]
    lines += [
        f"because  {sentence}" for sentence in reproduction.surroundings if not reproduction.same
    ]
    return "\n".join(lines)

"""`rlplug plugins`: which distributions contribute what, and why one cannot be used."""

from __future__ import annotations

import click

from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.tables import problem, row, table
from rlplug_cli.shared_options import plugins_json_option
from rlplug_core import plugins


@click.command("plugins")
@plugins_json_option
def command(as_json: bool) -> None:
    """List plugins with their contributions, and the reason if one cannot be used."""
    records = plugins.records()
    if as_json:
        echo_json([{"group": record.group, **row(record)} for record in records])
        return
    lines = [
        (
            f"{entry.distribution} {entry.version}",
            entry.group,
            entry.id,
            entry.status,
            str(plugins.contract(entry) or ""),
        )
        for entry in records
    ]
    echo(table(("PLUGIN", "GROUP", "NAME", "STATUS", "CONTRACT"), lines))
    for entry in records:
        if entry.status == "shadowed":
            echo(f"\n{entry}: {entry.reason}")
        elif entry.status != "ok":
            echo(f"\n{problem(entry)}")

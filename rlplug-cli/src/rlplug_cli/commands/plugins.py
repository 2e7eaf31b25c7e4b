"""`rlplug plugins`: which distributions contribute what, and why one cannot be used."""

from __future__ import annotations

import click

from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.tables import row, table
from rlplug_cli.shared_options import known_as_json
from rlplug_core import plugins
from rlplug_core.plugins import remedy


@click.command("plugins")
@known_as_json
def command(as_json: bool) -> None:
    """List plugins with their contributions, and the reason if one cannot be used."""
    found = plugins.records()
    if as_json:
        echo_json([{"group": record.group, **row(record)} for record in found])
        return
    lines = [
        (
            f"{one.distribution} {one.version}",
            one.group,
            one.id,
            one.status,
            str(plugins.contract(one) or ""),
        )
        for one in found
    ]
    echo(table(("PLUGIN", "GROUP", "NAME", "STATUS", "CONTRACT"), lines))
    for one in found:
        if one.status == "shadowed":
            echo(f"\n{one}: {one.reason}")
        elif one.status != "ok":
            echo(f"\n{one} is {one.status}: {one.reason}; {remedy(one)}")

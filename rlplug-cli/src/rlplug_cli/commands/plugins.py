"""`rlplug plugins`: which distributions contribute what, and why one cannot be used."""

from __future__ import annotations

import json

import click

from rlplug_cli.render.tables import row, table
from rlplug_core import plugins
from rlplug_core.plugins.names import remedy


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Write everything that is known as JSON.")
def command(as_json: bool) -> None:
    """List plugins with their contributions, and why one cannot be used."""
    found = plugins.records()
    if as_json:
        click.echo(json.dumps([{"group": record.group, **row(record)} for record in found], indent=1))
        return
    lines = [(f"{one.distribution} {one.version}", one.group, one.id, one.status) for one in found]
    click.echo(table(("PLUGIN", "GROUP", "NAME", "STATUS"), lines))
    for one in found:
        if one.status == "shadowed":
            click.echo(f"\n{one}: {one.reason}")
        elif one.status != "ok":
            click.echo(f"\n{one} is {one.status}: {one.reason}; {remedy(one)}")

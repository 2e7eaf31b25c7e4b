"""`rlplug list`: what can be run here, without importing any of it."""

from __future__ import annotations

import json

import click

from rlplug_cli.listing import rows, table
from rlplug_core.plugins.records import GROUPS


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write everything that is known as JSON.")
def command(as_json: bool) -> None:
    """List algorithms, environment providers and wrappers."""
    if as_json:
        click.echo(json.dumps({group: rows(group) for group in GROUPS}, indent=1))
        return
    for title, group in zip(("ALGORITHM", "ENVIRONMENTS", "WRAPPER"), GROUPS, strict=False):
        lines = [(row["id"], f"{row['distribution']} {row['version']}", _about(row)) for row in rows(group)]
        if lines:
            click.echo(table((title, "PLUGIN", "ABOUT"), lines) + "\n")
    click.echo("'rlplug info NAME' shows options, 'rlplug run ALGORITHM ENV --wrap WRAPPER' trains.")


def _about(row: dict[str, object]) -> str:
    if row["status"] not in ("ok", "shadowed"):
        return f"{row['status']}: {row['reason']}"
    mark = "" if row["indexed"] else " (not indexed)"
    return f"{row['summary']}{mark}" if row["status"] == "ok" else f"shadowed: {row['reason']}"

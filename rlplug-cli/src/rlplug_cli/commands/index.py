"""`rlplug index PLUGIN…`: writes or checks the index files, so help and completion need not import a plugin."""

from __future__ import annotations

from pathlib import Path

import click

from rlplug_cli.notes import short_path
from rlplug_cli.output import echo
from rlplug_cli.render.tables import problem
from rlplug_core import plugins
from rlplug_core.errors import PluginError, UsageError, did_you_mean
from rlplug_core.plugins import MODULES, Record, canonical


@click.command("index")
@click.argument(
    "plugin",
    nargs=-1,
    required=True,
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; exit with code 1 if an index is missing or out of date.",
)
@click.option(
    "--registry",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the plugins into this registry, for 'rlplug search'.",
)
@click.pass_context
def command(
    ctx: click.Context,
    plugin: tuple[str, ...],
    check: bool,
    registry: Path | None,
) -> None:
    """Write the index of the named PLUGINs, which are distributions, into their packages."""
    from rlplug_core.plugins import index_drift, write_index, write_registry

    stale = 0
    records = [record for name in plugin for record in _plugins_of(name)]
    for record in records:
        if not check:
            echo(f"wrote {short_path(write_index(record))}")
        elif drift := index_drift(record):
            echo(drift, err=True)
            stale += 1
    if registry is not None and not stale:
        count = write_registry(registry, records)
        echo(f"wrote {count} plugins into {short_path(registry)}")
    ctx.exit(1 if stale else 0)


def _plugins_of(name: str) -> list[Record]:
    """Return the plugins of a distribution that have an index: all except hooks and loggers."""
    installed = plugins.records()
    matching = [
        entry
        for entry in installed
        if entry.distribution == canonical(name) and entry.group not in MODULES
    ]
    for record in matching:
        if record.status not in ("ok", "shadowed"):
            raise PluginError(problem(record))
    if not matching:
        hint = did_you_mean(name, {entry.distribution for entry in installed})
        raise UsageError(
            f"no plugin '{name}' that contributes more than hooks and loggers is installed{hint}"
        )
    return matching

"""`rlplug doctor`: problems of this installation."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import click

from rlplug_cli import __version__
from rlplug_cli.mlflow import store
from rlplug_cli.output import echo
from rlplug_cli.render.tables import problem
from rlplug_core import __version__ as core_version
from rlplug_core import plugins
from rlplug_core.plugins import read_index


@click.command("doctor")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Check this installation; the exit code is 3 if a plugin cannot be used."""
    echo(
        f"rlplug {__version__} with rlplug-core {core_version}, Python {platform.python_version()}"
    )
    echo(f"interpreter {sys.executable}")
    echo(f"MLflow store {store.tracking_uri()}")
    findings = [problem(record) for record in plugins.records() if record.status != "ok"]
    findings += _index_problems()
    hooks: list[str] = []
    plugins.Hooks(report=findings.append).doctor(hooks)
    for sentence in findings + hooks:
        echo(f"- {sentence}")
    echo("no problems found" if not findings + hooks else "")
    ctx.exit(
        3 if any(record.status in ("broken", "incompatible") for record in plugins.records()) else 0
    )


def _index_problems() -> Iterator[str]:
    """Yield a sentence for each algorithm and provider of environments without a usable index."""
    for record in plugins.records():
        if record.status == "ok" and record.group in ("algorithms", "envs"):
            entry, reason = read_index(record)
            if entry is None:
                yield (
                    f"{record} has no usable index ({reason}), so help is slow; "
                    f"its author can write one: rlplug index {record.distribution}"
                )

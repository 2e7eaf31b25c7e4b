"""`rlplug info ALGO`: an algorithm's options with their types, defaults, ranges and help."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from typing import Any

import click

from rlplug_cli.commands.run import options_of
from rlplug_cli.listing import table
from rlplug_cli.parameters import TYPES, shown
from rlplug_core.config import Option, schema
from rlplug_core.options import RunOptions
from rlplug_core.plugins import index
from rlplug_core.plugins.loading import is_target
from rlplug_core.plugins.names import usable
from rlplug_core.presets import preset, usual


@click.command("info")
@click.argument("algorithm")
@click.argument("env", required=False)
@click.option("--json", is_flag=True, help="Write it as JSON.")
def command(algorithm: str, env: str | None, json: bool) -> None:
    """Show an algorithm's options; with ENV, also what its preset sets there."""
    own, every = options_of(algorithm), usual(algorithm, schema(RunOptions))
    about = _about(algorithm)
    values = preset(algorithm, env) if env else {}
    if json:
        options = {"options": [asdict(one) for one in own], "run_options": [asdict(one) for one in every]}
        click.echo(json_module.dumps({**about, **options, "preset": values}, indent=1))
        return
    for name, text in about.items():
        if text:
            click.echo(f"{name:<10} {text if isinstance(text, str) else ', '.join(text)}")
    click.echo(f"\n{_options(f'OPTION OF {algorithm.upper()}', own)}\n\n{_options('OPTION OF EVERY RUN', every)}")
    if values:
        lines = [(name, shown(value)) for name, value in values.items()]
        click.echo(f"\n{table((f'PRESET FOR {env}', 'VALUE'), lines)}")


def _about(algorithm: str) -> dict[str, Any]:
    if is_target(algorithm):
        return {"algorithm": algorithm}
    record = usable("algorithms", algorithm)
    found, why = index.read(record)
    about = {"algorithm": record.id, "plugin": f"{record.distribution} {record.version}", "target": record.target}
    if found is None:
        return {**about, "index": f"none: {why}"}
    return {**about, "summary": found.summary, "paper": found.paper, "runners": found.runners, "aliases": found.aliases}


def _options(title: str, options: tuple[Option, ...]) -> str:
    lines = [(one.name, _type(one), shown(one.default), one.help) for one in options]
    return table((title, "TYPE", "DEFAULT", "MEANING"), lines)


def _type(option: Option) -> str:
    kind = "|".join(option.choices) or TYPES[option.type]
    if option.minimum is not None:
        kind += f" {'>' if option.open_minimum else '≥'} {option.minimum:g}"
    if option.maximum is not None:
        kind += f" ≤ {option.maximum:g}"
    return f"{kind} or none" if option.optional else kind

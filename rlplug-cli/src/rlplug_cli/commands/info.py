"""`rlplug info NAME`: options of an algorithm, a wrapper or a controller: types, defaults, ranges and help."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from rlplug_cli.commands.run import declared
from rlplug_cli.output import echo, echo_json
from rlplug_cli.parameters import TYPES, shown
from rlplug_cli.render.tables import table
from rlplug_core import plugins
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import Option, schema
from rlplug_core.config.targets import is_target, load_target
from rlplug_core.errors import did_you_mean, warn
from rlplug_core.plugins import index
from rlplug_core.plugins.names import usable
from rlplug_core.plugins.presets import preset, usual
from rlplug_core.plugins.records import NOUNS, Group

#: The groups whose plugins an option of every run names, and this option.
OPTION: dict[Group, str] = {"wrappers": "--wrap", "controllers": "--controller"}


@click.command("info")
@click.argument("name")
@click.argument("env", required=False)
@click.option("--json", is_flag=True, help="Write it as JSON.")
def command(name: str, env: str | None, json: bool) -> None:
    """Show the options of an algorithm, wrapper or controller; with ENV, also what an algorithm's preset sets there."""
    if (group := _group(name)) in OPTION:
        _part(name, group, json)
        return
    own, every = usual(name, declared("algorithms", name)), usual(name, schema(RunOptions))
    about = _about(name)
    values = preset(name, env) if env else {}
    if env and not is_target(env) and env not in (known := list(plugins.env_ids())):
        warn(f"no environment '{env}' is known here{did_you_mean(env, known)}")
    if json:
        options = {"options": [asdict(one) for one in own], "run_options": [asdict(one) for one in every]}
        echo_json({**about, **options, "preset": values})
        return
    _tell(about)
    echo(f"\n{_options(f'OPTION OF {name.upper()}', own)}\n\n{_options('OPTION OF EVERY RUN', every)}")
    if values:
        lines = [(name, shown(value)) for name, value in values.items()]
        echo(f"\n{table((f'PRESET FOR {env}', 'VALUE'), lines)}")


def _group(name: str) -> Group:
    """Return the group of a name: wrappers, controllers, or else algorithms."""
    if is_target(name):
        return _group_of(load_target(name, "plugin"))
    here = [record.group for record in plugins.records() if name in (record.id, record.full_name)]
    groups: tuple[Group, ...] = ("algorithms", *OPTION)
    near = (group for group in groups if did_you_mean(name, plugins.ids(group)))
    return next((group for group in groups if group in here), next(near, "algorithms"))


def _group_of(code: object) -> Group:
    """Return what a class is, by what it has."""
    has = set(dir(code))
    if "step" in has:
        return "wrappers"
    return "controllers" if "load_state_dict" in has and not {"update", "learn"} & has else "algorithms"


def _part(name: str, group: Group, json: bool) -> None:
    options, about = declared(group, name), _about(name, group)
    if json:
        echo_json({**about, "options": [asdict(one) for one in options]})
        return
    _tell(about)
    if options:
        echo(f"\n{_options(f'OPTION OF {name.upper()}', options)}")
    example = ",".join(f"{one.name}={shown(one.default)}" for one in options)
    echo(f"\nrlplug run ALGORITHM ENV {OPTION[group]} {name}{example and f':{example}'}")


def _tell(about: dict[str, Any]) -> None:
    for title, text in about.items():
        if text:
            echo(f"{title:<10} {text if isinstance(text, str) else ', '.join(text)}")


def _about(name: str, group: Group = "algorithms") -> dict[str, Any]:
    noun = NOUNS[group]
    if is_target(name):
        return {noun: name}
    record = usable(group, name)
    found, why = index.read(record)
    about = {noun: record.id, "plugin": f"{record.distribution} {record.version}", "target": record.target}
    if found is None:
        return {**about, "index": f"none: {why}"}
    if group in OPTION:
        return {**about, "summary": found.summary}
    return {
        **about, "summary": found.summary, "paper": found.paper, "actions": found.actions, "runners": found.runners,
        "aliases": found.aliases,
    }  # fmt: skip


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

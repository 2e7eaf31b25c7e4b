"""`rlplug info NAME`: the options of an algorithm or of another plugin, or facts about an environment."""

from __future__ import annotations

import re
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from rlplug_cli.arguments import TakesArguments, single_env_arguments
from rlplug_cli.commands.run import options_of
from rlplug_cli.completion import OUT, algorithms_and_environments, environments
from rlplug_cli.notes import export_advice
from rlplug_cli.output import echo, echo_json
from rlplug_cli.parameters import type_text, value_text
from rlplug_cli.render.environment import show_environment
from rlplug_cli.render.tables import facts, table
from rlplug_cli.shared_options import FILE, env_argument_option
from rlplug_core import plugins
from rlplug_core.config import Option, RunOptions, is_regular, is_target, load_target, schema_of
from rlplug_core.errors import RlplugError, UsageError, did_you_mean, warn
from rlplug_core.plugins import (
    MODULES,
    NOUNS,
    Group,
    RunRequest,
    family_of,
    is_environment,
    names_code,
    preset_values,
    provider_in,
    read_index,
    usable,
    usual_options,
)
from rlplug_core.runs import shell_word

#: The end of an environment id; no other name ends like this.
_VERSIONED = re.compile(r"-v\d+$")
#: The option that takes a plugin of each group.
OPTION: dict[Group, str] = {
    "wrappers": "--wrap",
    "controllers": "--controller",
    "memories": "--memory",
    "networks": "--net.factory",
    "populations": "--rule",
    "hooks": "--hook",
    "loggers": "--log",
}


@click.command("info", cls=TakesArguments)
@click.argument("name", shell_complete=algorithms_and_environments)
@click.argument(
    "env",
    required=False,
    shell_complete=environments,
)
@click.option(
    "--json",
    is_flag=True,
    help="Write it as JSON.",
)
@click.option(
    "--frame",
    type=FILE,
    help="Write the first frame of an environment to FILE.png.",
)
@env_argument_option
def command(
    name: str,
    env: str | None,
    json: bool,
    frame: Path | None,
) -> None:
    """Show the options of an algorithm or another plugin, or an environment; with ENV also an algorithm's preset."""
    _refuse_results(name)
    group = _group(name)
    arguments = single_env_arguments(click.get_current_context())
    if group == "envs" and env is None:
        show_environment(name, arguments or {}, json, frame)
        return
    if frame is not None or arguments:
        raise UsageError(
            f"{name} is not an environment; only environments have frames and arguments"
        )
    if group in OPTION:
        _show_part(name, group, json)
    else:
        _show_algorithm(name, env, json)


def _refuse_results(name: str) -> None:
    """Refuse the name of a run or of an exported policy.

    Raises:
        UsageError: it is one; the message names the command that shows it.
    """
    if is_regular(Path(name) / "policy.json"):
        raise UsageError(export_advice(name))
    is_run = any(is_regular(path / "config.json") for path in (Path(name), OUT / name))
    if is_run and not is_target(name) and name not in plugins.ids("algorithms"):
        raise UsageError(f"{name} is a run; type: rlplug show {shell_word(name)}")


def _show_algorithm(name: str, env: str | None, json: bool) -> None:
    """Show the options of an algorithm and of every run, and the preset for `env`."""
    algorithm_options = usual_options(name, options_of("algorithms", name))
    run_options = usual_options(name, schema_of(RunOptions))
    description = _describe(name)
    values = _preset(name, env) if env else {}
    if env and not is_target(env) and env not in (known := list(plugins.env_ids())):
        warn(f"no environment '{env}' is known here{did_you_mean(env, known)}")
    if json:
        options = {
            "options": [asdict(option) for option in algorithm_options],
            "run_options": [asdict(option) for option in run_options],
        }
        echo_json({**description, **options, "preset": values})
        return
    _print_facts(description)
    echo(
        f"\n{_options_table(f'OPTION OF {name.upper()}', algorithm_options)}\n"
        f"\n{_options_table('OPTION OF EVERY RUN', run_options)}"
    )
    if values:
        lines = [(name, value_text(value)) for name, value in values.items()]
        echo(f"\n{table((f'PRESET FOR {env}', 'VALUE'), lines)}")
    if env:
        echo(f"\n{_networks(name, env)}")


def _preset(algorithm: str, env: str) -> dict[str, object]:
    """Return the presets that a run takes; without those for its kind of environment if it cannot be made."""
    try:
        request = RunRequest.make(algorithm, env, {}).with_presets()
    except RlplugError:  # `_networks` says why
        return preset_values(algorithm, env)
    return dict(request.values)


def _networks(algorithm: str, env: str) -> str:
    """Return the networks of an algorithm for an environment, or why they cannot be made."""
    from rlplug_core.runs import networks_of  # imports torch

    try:
        return networks_of(algorithm, env)
    except RlplugError as error:
        return f"network      not made: {error}"


def _group(name: str) -> Group:
    """Return the group of the plugin or environment `name`; for an unknown name that of the most similar one."""
    if is_target(name) and names_code(name):
        return _group_of(load_target(name, "plugin"))
    matching = [
        record.group for record in plugins.records() if name in (record.id, record.full_name)
    ]
    groups: tuple[Group, ...] = ("algorithms", *OPTION)
    if first := next((group for group in groups if group in matching), None):
        return first
    if provider_in(name) or _VERSIONED.search(name) or family_of(name) or name in plugins.env_ids():
        return "envs"
    ids = {id: group for group in reversed(groups) for id in plugins.ids(group)}
    if nearest := get_close_matches(name, ids, n=1):
        return ids[nearest[0]]
    return "envs" if "/" in name or did_you_mean(name, plugins.env_ids()) else "algorithms"


def _group_of(code: object) -> Group:
    """Return the group of a class or a function by its attributes."""
    attributes = set(dir(code))
    if any(name.startswith("rlplug_") for name in attributes):
        return "loggers"
    if "unroll" in attributes:
        return "memories"
    if "exchange" in attributes:
        return "populations"
    if "step" in attributes:
        return "envs" if is_environment(code) else "wrappers"
    if not isinstance(code, type):
        return "envs"
    return (
        "controllers"
        if "load_state_dict" in attributes and not {"update", "learn"} & attributes
        else "algorithms"
    )


def _show_part(name: str, group: Group, json: bool) -> None:
    options = options_of(group, name)
    description = _describe(name, group)
    if json:
        echo_json({**description, "options": [asdict(option) for option in options]})
        return
    _print_facts(description)
    if options:
        echo(f"\n{_options_table(f'OPTION OF {name.upper()}', options)}")
    example = ",".join(f"{option.name}={value_text(option.default)}" for option in options)
    command = "evolve" if group == "populations" else "run"
    echo(f"\nrlplug {command} ALGORITHM ENV {OPTION[group]} {name}{example and f':{example}'}")


def _print_facts(description: dict[str, Any]) -> None:
    texts = {
        title: text if isinstance(text, str) else ", ".join(text)
        for title, text in description.items()
    }
    echo(facts(((title, text) for title, text in texts.items() if text), 11))


def _describe(name: str, group: Group = "algorithms") -> dict[str, Any]:
    noun = NOUNS[group]
    if is_target(name):
        return {noun: name}
    record = usable(group, name)
    description = {
        noun: record.id,
        "plugin": f"{record.distribution} {record.version}",
        "target": record.target,
    }
    if group in MODULES:
        return {**description, "summary": record.summary}
    entry, reason = read_index(record)
    if entry is None:
        return {**description, "index": f"none: {reason}"}
    if group in OPTION:
        return {**description, "summary": entry.summary}
    return {
        **description,
        "summary": entry.summary,
        "paper": entry.paper,
        "actions": entry.actions,
        "runners": entry.runners,
        "aliases": entry.aliases,
    }


def _options_table(title: str, options: tuple[Option, ...]) -> str:
    lines = [
        (option.name, _type(option), value_text(option.default), option.help) for option in options
    ]
    return table((title, "TYPE", "DEFAULT", "MEANING"), lines)


def _type(option: Option) -> str:
    kind = type_text(option)
    if option.minimum is not None:
        kind += f" {'>' if option.open_minimum else '≥'} {option.minimum:g}"
    if option.maximum is not None:
        kind += f" ≤ {option.maximum:g}"
    return f"{kind} or none" if option.optional else kind

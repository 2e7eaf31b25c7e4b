"""Parameters of `rlplug run ALGORITHM` besides the options of the algorithm and of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click

from rlplug_cli.completion import assignments, run_names
from rlplug_cli.parameters import PositiveInt, network_prefixes
from rlplug_core import plugins
from rlplug_core.config import Option
from rlplug_core.plugins import Group


def command_options(names: list[str]) -> list[click.Parameter]:
    """Return the options of the command itself; `names` are those that `--set` may set."""
    as_json = click.Option(
        ["--json"], is_flag=True, help="Write the result as JSON to stdout, progress to stderr."
    )
    return [*_value_options(names), *_output_options(), *_seed_options(), as_json]


def _value_options(names: list[str]) -> list[click.Parameter]:
    return [
        click.Option(
            ["--set"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Set any option by its dotted name.",
            shell_complete=lambda _, __, word: assignments(names, word),
        ),
        click.Option(
            ["--env.NAME"], metavar="VALUE", expose_value=False, help="A keyword argument of ENV."
        ),
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path, dir_okay=False),
            help="Read options from a TOML file.",
        ),
    ]


def _output_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--name"], help="Name of the run directory  [algorithm, environment, seed and time]"
        ),
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path),
            default="runs",
            help="The directory of run directories  [runs]",
        ),
        click.Option(
            ["--print-config"],
            is_flag=True,
            help="Write all options as TOML with their origins, without training.",
        ),
        click.Option(
            ["--quiet", "-q"],
            is_flag=True,
            help="Show no progress, only the result.",
        ),
    ]


def _seed_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--seeds"],
            metavar="N|A,B,…",
            help="Train N seeds starting at --seed, or these; the same command continues a stopped one.",
        ),
        click.Option(
            ["--jobs"],
            type=click.IntRange(1),
            help="Number of seeds at once  [as many as cores allow]",
        ),
        click.Option(
            ["--until"],
            type=PositiveInt(),
            metavar="INTEGER",
            help="Pause at this env step; 'rlplug resume' continues bit for bit.",
        ),
    ]


def network_options(algorithm_options: Iterable[Option]) -> list[click.Parameter]:
    """Return `--net` and `--critic-net` for an algorithm that has these networks with options."""
    options = list(algorithm_options)
    texts = {
        "--net": "Your own network: a TOML file with net options, or a function, ./my_net.py:make",
        "--critic-net": "The same for the critic's network only",
    }
    return [
        click.Option([flag], type=click.Path(), metavar="FILE", help=text)
        for flag, text in texts.items()
        if network_prefixes(options, flag)
    ]


def completer(option: Option) -> Callable[[], Iterable[str]]:
    """Return a function that returns words to complete the value of an option."""
    groups: dict[str, Group] = {
        "wrap": "wrappers",
        "eval_wrap": "wrappers",
        "controller": "controllers",
        "log": "loggers",
        "hook": "hooks",
    }
    if option.name == "init":
        return run_names
    if option.name in groups:
        return lambda: plugins.ids(groups[option.name])
    return tuple

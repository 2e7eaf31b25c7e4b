"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: A file or a directory that a command writes or reads.
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
#: `--out` of commands that read runs.
runs_directory_option = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="runs",
    help="The directory of run directories  [runs]",
)
#: `--json` of commands that train.
json_option = click.option(
    "--json", is_flag=True, help="Write the result as JSON to stdout, progress to stderr."
)
#: `--json` of commands that list plugins.
plugins_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Write all information as JSON."
)
#: The help of `--env.NAME`; `split_arguments` parses it.
env_argument_option = click.option(
    "--env.NAME", metavar="VALUE", expose_value=False, help="An argument of the environment."
)


def all_of(parameters: Sequence[Decorator]) -> Decorator:
    """Return one decorator that adds several options and arguments in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return decorate


def many_runs(
    directory: str,
    words: str,
    jobs: str = "How many runs at once",
) -> Decorator:
    """Return the options of a command that trains many runs at once, and its last argument.

    Args:
        directory: the noun of its directory, with the default of the name in brackets.
        words: the metavar of the options that the command passes on to its runs.
        jobs: the help of `--jobs`.
    """
    parameters = [
        click.option("--jobs", type=click.IntRange(1), help=f"{jobs}  [as many as cores allow]"),
        click.option("--name", help=f"Name of {directory}"),
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            default="runs",
            help="Its parent directory  [runs]",
        ),
        json_option,
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar=words),
    ]
    return all_of(parameters)

"""What the tests of the documentation share."""

from __future__ import annotations

from collections.abc import Iterator

import click


def options(command: click.Command) -> Iterator[str]:
    """The options of a command and of all below it."""
    context = click.Context(command)
    for parameter in command.get_params(context):
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below)

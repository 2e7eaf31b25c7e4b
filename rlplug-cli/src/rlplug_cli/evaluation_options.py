"""The options of commands that let a checkpoint act: which one, how, and in which environment."""

from __future__ import annotations

from collections.abc import Callable

import click

from rlplug_cli.completion import checkpoints


def checkpoint() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option that names one."""
    text = "best, final, latest or a name  [best]"
    return click.option(
        "--checkpoint", default="best", metavar="NAME", shell_complete=checkpoints, help=text
    )


def conditions(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add `checkpoint`, `stochastic`, `epsilon`, `env` and `wrap`; `verb` begins the help of `--env`.

    `wrap` is None where the run's own wrappers stay.
    """
    options = (
        checkpoint(),
        click.option(
            "--stochastic", is_flag=True, help="Explore as in training at the checkpoint's step."
        ),
        click.option(
            "--epsilon",
            type=click.FloatRange(0, 1),
            default=0.0,
            help="The chance of a random action per step  [0]",
        ),
        click.option(
            "--env",
            help=f"{verb} another environment with the same spaces.",
        ),
        click.option(
            "--env.NAME",
            metavar="VALUE",
            expose_value=False,
            help="An argument of the environment.",
        ),
        click.option(
            "--wrap",
            multiple=True,
            metavar="WRAPPER",
            callback=_chosen,
            help="Wrappers in place of the run's own; none for none.",
        ),
    )

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _chosen(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> list[str] | None:
    return [word for word in words if word != "none"] if words else None

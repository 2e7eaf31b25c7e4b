"""The options of commands that play a checkpoint: the checkpoint, the exploration and the environment."""

from __future__ import annotations

import click

from rlplug_cli.completion import checkpoints
from rlplug_cli.shared_options import Decorator, all_of, env_argument_option

#: `--checkpoint` of commands that use one checkpoint of a run.
checkpoint_option = click.option(
    "--checkpoint",
    default="best",
    metavar="NAME",
    shell_complete=checkpoints,
    help="best, final, latest or a name  [best]",
)


def condition_options(verb: str) -> Decorator:
    """Return a decorator that adds `checkpoint`, `stochastic`, `epsilon`, `env` and `wrap`.

    `verb` starts the help of `--env`. `wrap` is None to keep the run's own wrappers.
    """
    return all_of([checkpoint_option, *_exploration(), *_environment(verb)])


def _exploration() -> tuple[Decorator, ...]:
    """Return the options of an agent that does not act greedily."""
    return (
        click.option(
            "--stochastic", is_flag=True, help="Explore as in training at the checkpoint's step."
        ),
        click.option(
            "--epsilon",
            type=click.FloatRange(0, 1),
            default=0.0,
            help="Probability of a random action at each step  [0]",
        ),
    )


def _environment(verb: str) -> tuple[Decorator, ...]:
    """Return the options of another environment, with its arguments and its wrappers."""
    return (
        click.option("--env", help=f"{verb} another environment with the same spaces."),
        env_argument_option,
        click.option(
            "--wrap",
            multiple=True,
            metavar="WRAPPER",
            callback=lambda context, parameter, words: (
                [word for word in words if word != "none"] if words else None
            ),
            help="Wrappers instead of the run's own; 'none' for no wrapper.",
        ),
    )

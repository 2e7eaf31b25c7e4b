"""Random argument lists with typing errors, made from the parameters of the commands; a seed fixes the lists."""

from __future__ import annotations

import random
from collections.abc import Iterator

import click

from rlplug_cli.app import COMMANDS, app

#: Words for option values and for any other position.
VALUES = (
    "0", "1", "-1", "3", "1e3", "1e400", "nan", "inf", "", " ", "x", "none", "yes", "a,b", "1,,2", "1..2:log", "1e-3",
    "CartPole-v1", "Nope-v1", "./nothing.py:Env", "module:thing", "a2c", "ppo", "../up", "/", "~", "*", "é", "\t", "[]",
    "{}", "linear(1,0)", "cosine(1,2", "a=b", "=", "learning_rate=x", "net.hidden=64,64", "--", "-", "🙂", "a" * 300,
)  # fmt: skip
#: Commands that would train, serve or write if all words were valid: their lists end with an invalid word.
INVALID = {
    "run": ("--num-envs", "x"), "sweep": ("--seeds", "x"), "tune": ("--trials", "x"), "ui": ("--port", "x"),
    "new": ("--out", "/dev/null/x"), "check": ("--nope",), "index": ("--nope",), "doctor": ("--nope",),
    "export": ("--nope",),
}  # fmt: skip
#: Options that write a file where the user says: a random word is a valid path.
WRITING = ("--page", "--badges")


def argument_lists(count: int, seed: int) -> Iterator[list[str]]:
    """Yield random argument lists of all commands; none of them trains."""
    draw = random.Random(seed)
    for _ in range(count):
        name = draw.choice(list(COMMANDS))
        words = [name, *(random_words(draw, name) if draw.random() < 0.95 else [])]
        yield [*words, *INVALID.get(name, ())]


def random_words(draw: random.Random, name: str) -> list[str]:
    """Return words for a command: often a subcommand, then some of its options with good and bad values."""
    command = app.get_command(click.Context(app), name)
    words: list[str] = []
    if isinstance(command, click.Group):
        context = click.Context(command)
        subcommand = draw.choice([*command.list_commands(context)[:6], draw.choice(VALUES)])
        words.append(subcommand)
        command = command.get_command(context, subcommand) if subcommand in command.list_commands(context) else None
    words += draw.sample(VALUES, draw.randrange(3))
    names = options(command) if command else ["--help", "--json"]
    for _ in range(draw.randrange(4)):
        flag = draw.choice(names)
        words += [misspell(draw, flag)] if draw.random() < 0.2 else [flag]
        words += [draw.choice(VALUES)] if draw.random() < 0.8 else []
    return words


def options(command: click.Command) -> list[str]:
    """Return the options of a command."""
    parameters = command.get_params(click.Context(command))
    flags = [flag for each in parameters for flag in (*each.opts, *each.secondary_opts)]
    return [flag for flag in flags if flag.startswith("-") and flag not in WRITING]


def misspell(draw: random.Random, flag: str) -> str:
    """Drop, double or replace one letter of an option."""
    at = draw.randrange(len(flag))
    return flag[:at] + draw.choice(["", flag[at] * 2, "q"]) + flag[at + 1 :]

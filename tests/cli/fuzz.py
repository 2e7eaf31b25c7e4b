"""Argument lists as people mistype them, made from the commands' own parameters; the same seed gives the same lists."""

from __future__ import annotations

import random
from collections.abc import Iterator

import click

from rlplug_cli.app import COMMANDS, app

#: What is typed where a value belongs, or anywhere.
VALUES = (
    "0", "1", "-1", "3", "1e3", "1e400", "nan", "inf", "", " ", "x", "none", "yes", "a,b", "1,,2", "1..2:log", "1e-3",
    "CartPole-v1", "Nope-v1", "./nothing.py:Env", "module:thing", "a2c", "ppo", "../up", "/", "~", "*", "é", "\t", "[]",
    "{}", "linear(1,0)", "cosine(1,2", "a=b", "=", "learning_rate=x", "net.hidden=64,64", "--", "-", "🙂", "a" * 300,
)  # fmt: skip
#: Commands that would train, serve or write where everything fits: their lists end with what is refused.
REFUSED = {
    "run": ("--num-envs", "x"), "sweep": ("--seeds", "x"), "tune": ("--trials", "x"), "ui": ("--port", "x"),
    "new": ("--out", "/dev/null/x"), "check": ("--nope",), "index": ("--nope",), "doctor": ("--nope",),
    "export": ("--nope",),
}  # fmt: skip


def argument_lists(count: int, seed: int) -> Iterator[list[str]]:
    """Random argument lists of every command, which train nothing."""
    draw = random.Random(seed)
    for _ in range(count):
        name = draw.choice(list(COMMANDS))
        words = [name, *(typed(draw, name) if draw.random() < 0.95 else [])]
        yield [*words, *REFUSED.get(name, ())]


def typed(draw: random.Random, name: str) -> list[str]:
    """Some words behind a command: often a proper beginning, then options of its own with values, good and bad."""
    command = app.get_command(click.Context(app), name)
    words: list[str] = []
    if isinstance(command, click.Group):
        context = click.Context(command)
        below = draw.choice([*command.list_commands(context)[:6], draw.choice(VALUES)])
        words.append(below)
        command = command.get_command(context, below) if below in command.list_commands(context) else None
    words += draw.sample(VALUES, draw.randrange(3))
    flags = options(command) if command else ["--help", "--json"]
    for _ in range(draw.randrange(4)):
        flag = draw.choice(flags)
        words += [mistyped(draw, flag)] if draw.random() < 0.2 else [flag]
        words += [draw.choice(VALUES)] if draw.random() < 0.8 else []
    return words


def options(command: click.Command) -> list[str]:
    """The options of a command."""
    found = [flag for one in command.get_params(click.Context(command)) for flag in (*one.opts, *one.secondary_opts)]
    return [flag for flag in found if flag.startswith("-")]


def mistyped(draw: random.Random, flag: str) -> str:
    """An option with a letter left out, doubled, or another one."""
    at = draw.randrange(len(flag))
    return flag[:at] + draw.choice(["", flag[at] * 2, "q"]) + flag[at + 1 :]

"""`rlplug run ALGO ENV`: every algorithm is a command of its own, built from its option schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rlplug_cli.parameters import SchemaOption, gathered, nets
from rlplug_core import plugins
from rlplug_core.config import Config, Option, schema
from rlplug_core.errors import BadConfig, PluginError, UsageError
from rlplug_core.options import RunOptions
from rlplug_core.plugins import index
from rlplug_core.plugins.loading import is_target
from rlplug_core.plugins.names import usable
from rlplug_core.plugins.records import Group
from rlplug_core.presets import resolve, usual

_BY_USER = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.PROMPT)


class Algorithms(click.Group):
    """The installed algorithms as commands; help and completion ask the index alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(
                f"option '{error.option_name}' belongs behind the algorithm: "
                f"rlplug run ALGORITHM ENV {error.option_name} …"
            ) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return plugins.ids("algorithms")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        own, every = declared("algorithms", cmd_name, may_import=not ctx.resilient_parsing), schema(RunOptions)
        if not ctx.resilient_parsing:  # completion shows no defaults, and so reads no presets
            own, every = usual(cmd_name, own), usual(cmd_name, every)
        return AlgorithmCommand(cmd_name, own, every)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from rlplug_cli.listing import rows

        with formatter.section("Algorithms"):
            formatter.write_dl([(row["id"], row["summary"] or row["reason"]) for row in rows("algorithms")])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith(("./", "/", "~")):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]


class AlgorithmCommand(click.Command):
    """`rlplug run <algorithm> ENV`, with the algorithm's options beside those of every run."""

    def __init__(self, algorithm: str, own: tuple[Option, ...], every: tuple[Option, ...]) -> None:
        self.algorithm, self.own, self.run_options = algorithm, own, every
        parameters: list[click.Parameter] = [
            click.Argument(["env"], metavar="ENV", shell_complete=_complete_env),
            *(SchemaOption(option, algorithm, _completed(option)) for option in (*self.own, *self.run_options)),
            *_network(own),
            *_fixed(),
        ]
        super().__init__(
            algorithm,
            params=parameters,
            callback=self.train,
            help=f"Train {algorithm} on ENV: an environment id, module:callable or ./file.py:callable.",
            context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
        )

    def train(self, env: str, name: str | None, out: Path, json: bool, **given: Any) -> None:
        for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(variable, "1")  # read once, when numpy is imported
        if name is not None and (Path(name).name != name or name.startswith(".")):
            raise UsageError(
                f"--name {name}: it names a directory, without '/' or a leading '.'; --out says where it is"
            )
        pairs, file, net = given.pop("set"), given.pop("config"), given.pop("net", None)
        context = click.get_current_context()
        chosen = {name: value for name, value in given.items() if context.get_parameter_source(name) in _BY_USER}
        values, origins = gathered(chosen, pairs, file, (*self.own, *self.run_options), self.algorithm, net)
        values, origins = resolve(self.algorithm, env, values, origins)
        from rlplug_cli.training import trained

        trained(self.algorithm, env, values, origins, name=name, out=out, as_json=json)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        every: list[tuple[str, str]] = []
        output: list[tuple[str, str]] = []
        names = {option.name for option in self.own}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or isinstance(parameter, click.Argument):
                continue
            if isinstance(parameter, SchemaOption):
                (own if parameter.option.name in names else every).append(record)
            elif parameter.name == "net":
                own.append(record)
            else:
                output.append(record)
        titles = (f"Options of {self.algorithm}", "Options of every run", "Other options")
        for title, records in zip(titles, (own, every, output), strict=True):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def declared(group: Group, name: str, may_import: bool = True) -> tuple[Option, ...]:
    """The options of an algorithm or a wrapper, from its index or else from its code; none without either.

    Presets are left out.

    Raises:
        UsageError, PluginError: there is no such plugin, or it cannot be used.
    """
    owner = f"'{name}'"
    if not is_target(name):
        record = usable(group, name)
        found, _ = index.read(record)
        if found is not None:
            return index.options(found)
        owner = str(record)
    if not may_import:
        return ()
    cls: Any = plugins.algorithm(name) if group == "algorithms" else plugins.wrapper(name)
    try:
        return schema(getattr(cls, "Config", Config))
    except (BadConfig, NameError, TypeError) as error:  # a foreign class may annotate its fields with anything
        raise PluginError(f"{owner} has options that cannot be shown: {error}; ask its author") from error


def _fixed() -> list[click.Parameter]:
    file, place = click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path)
    return [
        click.Option(["--set"], multiple=True, metavar="NAME=VALUE", help="Set any option by its dotted name."),
        click.Option(["--config"], type=file, help="Read options from a TOML file."),
        click.Option(["--name"], help="The run directory's name  [algorithm, environment, seed and time]"),
        click.Option(["--out"], type=place, default="runs", help="Where run directories are made  [runs]"),
        click.Option(["--json"], is_flag=True, help="Write the result as JSON to stdout, progress to stderr."),
    ]


def _network(own: Iterable[Option]) -> list[click.Parameter]:
    """`--net`, where an algorithm has a network to describe."""
    if not nets(own):
        return []
    text = "A network of your own: a TOML file with net options, or a function, ./my_net.py:make"
    return [click.Option(["--net"], type=click.Path(), metavar="FILE", help=text)]


def _completed(option: Option) -> Callable[[], Iterable[str]]:
    """What the values of an option may begin with, when they are asked for."""
    return (lambda: plugins.ids("wrappers")) if option.name == "wrap" else tuple


def _complete_env(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in plugins.env_ids() if name.lower().startswith(incomplete.lower())]


command = Algorithms(
    "run",
    help="Train an algorithm on an environment: rlplug run a2c CartPole-v1. 'rlplug run a2c --help' shows its options.",
    subcommand_metavar="ALGORITHM ENV [OPTIONS]…",
    no_args_is_help=True,
)

"""`rlplug run ALGO ENV`: every algorithm is a command of its own, built from its option schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rlplug_cli import arguments, sections
from rlplug_cli.arguments import TakesArguments
from rlplug_cli.completion import assignments, environments, run_names
from rlplug_cli.lookup import one_thread
from rlplug_cli.output import echo
from rlplug_cli.parameters import SchemaOption, flag, gathered, nets, spelled
from rlplug_cli.render.config import written_out
from rlplug_core import plugins
from rlplug_core.config.import_string import is_target
from rlplug_core.config.options import Config
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import Option, schema
from rlplug_core.config.synonyms import nearest
from rlplug_core.errors import BadConfig, PluginError, UsageError
from rlplug_core.plugins import index
from rlplug_core.plugins.names import usable
from rlplug_core.plugins.presets import resolve, usual
from rlplug_core.plugins.records import Group
from rlplug_core.plugins.reserved import check_options

_OPTION = re.compile(r"(?<!no )option '([\w.]+)'")
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
        own = declared("algorithms", cmd_name, may_import=not ctx.resilient_parsing)
        every = schema(RunOptions)
        if not ctx.resilient_parsing:  # completion shows no defaults, and so reads no presets
            check_options(cmd_name, [option.name for option in own])
            own = usual(cmd_name, own)
            every = usual(cmd_name, every)
        return AlgorithmCommand(cmd_name, own, every)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from rlplug_cli.render.tables import rows

        with formatter.section("Algorithms"):
            formatter.write_dl(
                [(row["id"], row["summary"] or row["reason"]) for row in rows("algorithms")]
            )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith(("./", "/", "~")):
            return [CompletionItem(incomplete, type="file")]
        return [
            CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)
        ]


class AlgorithmCommand(TakesArguments):
    """`rlplug run <algorithm> ENV`, with the algorithm's options beside those of every run."""

    def __init__(self, algorithm: str, own: tuple[Option, ...], every: tuple[Option, ...]) -> None:
        self.algorithm = algorithm
        self.own = own
        self.run_options = every
        parameters: list[click.Parameter] = [
            click.Argument(["env"], metavar="ENV", shell_complete=environments),
            *(
                SchemaOption(option, algorithm, _completed(option))
                for option in (*self.own, *self.run_options)
            ),
            *_network(own),
            *_fixed([option.name for option in (*own, *every)]),
        ]
        super().__init__(
            algorithm,
            params=parameters,
            callback=self.train,
            help=f"Train {algorithm} on ENV: an environment id, module:Name or ./file.py:Name of a class or function.",
            context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            with self._as_typed():
                return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(
                f"no such option '{error.option_name}'{self.near(error.option_name)} "
                f"('{ctx.command_path} --help' lists them)"
            ) from error

    def near(self, typed: str) -> str:
        """Return `"; did you mean '--num-envs'?"` for an unknown option, or what else it may mean, or nothing."""
        known = [option.name for option in (*self.own, *self.run_options)]
        return having(typed) or nearest(typed, known, write=flag)

    def invoke(self, ctx: click.Context) -> Any:
        with self._as_typed():
            return super().invoke(ctx)

    @contextmanager
    def _as_typed(self) -> Iterator[None]:
        """Core names options as Python does; a sentence on a terminal names them as they are typed there."""
        try:
            yield
        except BadConfig as error:
            known = {option.name for option in (*self.own, *self.run_options)}
            raise BadConfig(
                _OPTION.sub(lambda found: _flagged(found, known), str(error))
            ) from error

    def train(
        self, env: str, name: str | None, out: Path, json: bool, quiet: bool, **given: Any
    ) -> None:
        one_thread()
        refuse_path(name)
        context = click.get_current_context()
        values, origins = self.resolved(context)
        if given["print_config"]:
            echo(written_out(values, origins, (*self.own, *self.run_options)))
            return
        if given["jobs"] and given["seeds"] is None:
            raise UsageError("--jobs is of several seeds; add --seeds, as in --seeds 5")
        if given["seeds"] is not None:
            from rlplug_cli.sweep.grid import refuse_seed
            from rlplug_cli.sweep.seeds import seeded

            if "," in given["seeds"]:
                refuse_seed(origins)
            self.probe(env, values)
            seeded(
                self.algorithm,
                env,
                self.chosen(context),
                values,
                text=given["seeds"],
                name=name,
                out=out,
                jobs=given["jobs"],
                as_json=json,
                quiet=quiet,
            )
            return
        from rlplug_cli.training import trained

        trained(self.algorithm, env, values, origins, name=name, out=out, as_json=json, quiet=quiet)

    def resolved(self, context: click.Context) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what was typed over the preset, and where each value is from.

        Raises:
            UsageError, BadConfig: something that was typed means nothing here.
        """
        given = context.params
        typed = {
            name: value
            for name, value in given.items()
            if context.get_parameter_source(name) in _BY_USER
        }
        typed |= arguments.typed(context)
        options = (*self.own, *self.run_options)
        values, origins = gathered(
            typed,
            pairs=given["set"],
            file=given["config"],
            options=options,
            owner=self.algorithm,
            net=given.get("net"),
        )
        from rlplug_core.plugins.env_kind import kind_for  # it may have to make the environment

        kind = kind_for(self.algorithm, given["env"], values)
        values, origins = resolve(self.algorithm, given["env"], values, origins, kind)
        if origins.get("init_parts") in ("option", "set") and not values.get("init"):
            raise UsageError(
                "option '--init-parts' says what is taken from --init, and there is none; add --init RUN"
            )
        return values, origins

    def probe(self, env: str, values: Mapping[str, object]) -> None:
        """Refuse what a run with these options, presets included, would not begin.

        Raises:
            UsageError, PluginError: it would not.
        """
        from rlplug_core.runs.api import probe

        with self._as_typed():
            probe(self.algorithm, env, values)

    def chosen(self, context: click.Context) -> list[str]:
        """The words that say again what was typed behind ALGORITHM ENV, but for seeds and where the run goes."""
        words: list[str] = [*arguments.spelled(arguments.typed(context))]
        for parameter in self.get_params(context):
            name = str(parameter.name)
            if context.get_parameter_source(name) not in _BY_USER:
                continue
            value = context.params[name]
            if isinstance(parameter, SchemaOption) and parameter.option.name != "seed":
                words += spelled(parameter.option, value)
            elif name in ("set", "config", "net"):
                words += [
                    word
                    for one in (value if name == "set" else [value])
                    for word in (f"--{name}", str(one))
                ]
        return words

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found: dict[str, list[tuple[str, str]]] = {
            title: [] for title in sections.titles(self.algorithm)
        }
        own = {option.name for option in self.own}
        parameters = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        for parameter in sorted(parameters, key=_every_run_first):
            if record := parameter.get_help_record(ctx):
                name = (
                    parameter.option.name
                    if isinstance(parameter, SchemaOption)
                    else str(parameter.name)
                )
                shared = isinstance(parameter, SchemaOption) or name == "net"
                title = (
                    sections.title(name, self.algorithm, name in own)
                    if shared
                    else "Input and output"
                )
                found[title].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _flagged(found: re.Match[str], known: Container[str]) -> str:
    return f"option '{flag(found[1])}'" if found[1] in known else found[0]


def refuse_path(name: str | None) -> None:
    """Refuse a `--name` that is a path, or that a terminal cannot show.

    Raises:
        UsageError: it is one.
    """
    if name is not None and not name.isprintable():
        raise UsageError(f"--name {name!r}: a name has printable characters; choose another")
    if name is not None and (Path(name).name != name or name.startswith(".")):
        raise UsageError(
            f"--name {name}: it names a directory, without '/' or a leading '.'; --out says where it is"
        )


def _every_run_first(parameter: click.Option) -> bool:
    """Sort the total and the number of environments, which every run has, before an algorithm's own options."""
    return not (
        isinstance(parameter, SchemaOption)
        and parameter.option.name in ("total_timesteps", "num_envs")
    )


def declared(group: Group, name: str, may_import: bool = True) -> tuple[Option, ...]:
    """The options of an algorithm, wrapper or controller, from its index or else from its code; none without either.

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
    find = {
        "algorithms": plugins.algorithm,
        "wrappers": plugins.wrapper,
        "controllers": plugins.controller,
    }[group]
    cls: object = find(name)
    try:
        return schema(getattr(cls, "Config", Config))
    except (
        BadConfig,
        NameError,
        TypeError,
    ) as error:  # a foreign class may annotate its fields with anything
        ask = "" if is_target(name) else "; ask its author"
        raise PluginError(f"{owner} has options that cannot be shown: {error}{ask}") from error


def having(typed: str) -> str:
    """Return `"; a2c, ppo and 3 more have it"` for the flag of an option of other installed algorithms, or nothing."""
    found: list[str] = []
    for name in plugins.ids("algorithms"):
        options = None
        with suppress(PluginError):  # of one that is broken nothing is known
            options, _ = index.read(usable("algorithms", name))
        if options is not None and typed in {
            flag(option.name) for option in index.options(options)
        }:
            found.append(name)
    if not found:
        return ""
    shown = found[:6]
    more = len(found) - 6
    return f"; {', '.join(shown)}{f' and {more} more' if more > 0 else ''} {'have' if len(found) > 1 else 'has'} it"


def _fixed(names: list[str]) -> list[click.Parameter]:
    file = click.Path(path_type=Path, dir_okay=False)
    place = click.Path(path_type=Path)
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
        click.Option(["--config"], type=file, help="Read options from a TOML file."),
        click.Option(
            ["--name"], help="The run directory's name  [algorithm, environment, seed and time]"
        ),
        click.Option(
            ["--out"], type=place, default="runs", help="Where run directories are made  [runs]"
        ),
        click.Option(
            ["--print-config"],
            is_flag=True,
            help="Write all options as TOML and where each is from; no training.",
        ),
        click.Option(
            ["--quiet", "-q"], is_flag=True, help="Show no progress, only what came of it."
        ),
        click.Option(
            ["--seeds"],
            metavar="N|A,B,…",
            help="Train N seeds from --seed on, or these; typed again, it goes on.",
        ),
        click.Option(
            ["--jobs"],
            type=click.IntRange(1),
            help="Of several seeds, how many at once  [as cores allow]",
        ),
        click.Option(
            ["--json"], is_flag=True, help="Write the result as JSON to stdout, progress to stderr."
        ),
    ]


def _network(own: Iterable[Option]) -> list[click.Parameter]:
    """`--net`, where an algorithm has a network to describe."""
    if not nets(own):
        return []
    text = "A network of your own: a TOML file with net options, or a function, ./my_net.py:make"
    return [click.Option(["--net"], type=click.Path(), metavar="FILE", help=text)]


def _completed(option: Option) -> Callable[[], Iterable[str]]:
    """Return a function that completes the values of an option."""
    groups: dict[str, Group] = {
        "wrap": "wrappers",
        "eval_wrap": "wrappers",
        "controller": "controllers",
        "log": "loggers",
    }
    if option.name == "init":
        return run_names
    return (lambda: plugins.ids(groups[option.name])) if option.name in groups else tuple


command = Algorithms(
    "run",
    help="Train an algorithm on an environment: rlplug run a2c CartPole-v1. 'rlplug run a2c --help' shows its options.",
    subcommand_metavar="ALGORITHM ENV [OPTIONS]…",
    no_args_is_help=True,
)

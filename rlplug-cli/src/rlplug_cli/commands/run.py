"""`rlplug run ALGORITHM ENV`: every algorithm is a subcommand with the options of its schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rlplug_cli import arguments, sections
from rlplug_cli.arguments import TakesArguments
from rlplug_cli.completion import PATH, complete_names, environments
from rlplug_cli.file_checks import refuse_path
from rlplug_cli.output import echo
from rlplug_cli.parameters import SchemaOption, flag_of, option_words
from rlplug_cli.project import project_options
from rlplug_cli.render.config import config_text
from rlplug_cli.run_parameters import command_options, completer, network_options
from rlplug_core import plugins
from rlplug_core.config import Config, Option, RunOptions, is_target, nearest, schema_of
from rlplug_core.errors import BadConfig, PluginError, UsageError
from rlplug_core.plugins import (
    Group,
    check_options,
    index_options,
    read_index,
    usable,
    usual_options,
)

if TYPE_CHECKING:
    from rlplug_core.plugins import RunRequest

# Not after "no": "has no option 'NAME'" quotes the word that the user typed.
_OPTION = re.compile(r"(?<!no )option '([\w.]+)'")
_BY_USER = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.PROMPT)


class Algorithms(click.Group):
    """The installed algorithms as subcommands; help and completion read only the index."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)  # click removes words from `args`
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(_option_before_algorithm(error.option_name, words)) from error

    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except (UsageError, PluginError):
            algorithms = plugins.ids("algorithms")
            if args[0] not in algorithms and args[1:2] and args[1] in algorithms:
                raise UsageError(
                    f"the algorithm comes before the environment: rlplug run {args[1]} {args[0]}"
                ) from None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return plugins.ids("algorithms")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        algorithm_options = options_of("algorithms", cmd_name, may_import=not ctx.resilient_parsing)
        shared = schema_of(RunOptions)
        if not ctx.resilient_parsing:  # completion shows no defaults and reads no presets
            check_options(cmd_name, [option.name for option in algorithm_options])
            algorithm_options = usual_options(cmd_name, algorithm_options)
            shared = usual_options(cmd_name, shared)
        return AlgorithmCommand(cmd_name, algorithm_options, shared)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        from rlplug_cli.render.tables import rows

        with formatter.section("Algorithms"):
            formatter.write_dl(
                [(row["id"], row["summary"] or row["reason"]) for row in rows("algorithms")]
            )

    def shell_complete(
        self,
        ctx: click.Context,
        incomplete: str,
    ) -> list[CompletionItem]:
        if incomplete.startswith(PATH):
            return [CompletionItem(incomplete, type="file")]
        return complete_names(self.list_commands(ctx), incomplete)


def _option_before_algorithm(flag: str, args: list[str]) -> str:
    """Return the advice for an option before the algorithm, such as `--algo` and `--env` of rl-zoo3."""
    words = dict(pairwise(args))
    if {"--algo", "--env"} <= words.keys():
        return f"write the algorithm and the environment without options: rlplug run {words['--algo']} {words['--env']}"
    return f"put options after the algorithm: rlplug run ALGORITHM ENV {flag} …"


class AlgorithmCommand(TakesArguments):
    """`rlplug run <algorithm> ENV`, with the options of the algorithm and those of every run."""

    def __init__(
        self,
        algorithm: str,
        algorithm_options: tuple[Option, ...],
        shared: tuple[Option, ...],
    ) -> None:
        self.algorithm = algorithm
        self.algorithm_options = algorithm_options
        self.run_options = shared
        self.options = (*algorithm_options, *shared)
        parameters: list[click.Parameter] = [
            click.Argument(["env"], metavar="ENV", shell_complete=environments)
        ]
        for option in self.options:
            parameters.append(SchemaOption(option, algorithm, completer(option)))
        super().__init__(
            algorithm,
            params=[
                *parameters,
                *network_options(algorithm_options),
                *command_options([option.name for option in self.options]),
            ],
            callback=self.train,
            help=f"Train {algorithm} on ENV: an environment id, module:Name or ./file.py:Name of a class or function.",
            context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            with self._convert_names_in_errors():
                return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise UsageError(
                f"no such option '{error.option_name}'{self.suggestion(error.option_name)} "
                f"('{ctx.command_path} --help' lists them)"
            ) from error

    def suggestion(self, flag: str) -> str:
        """Return `"; did you mean '--num-envs'?"` for an unknown option, or the algorithms that have it, or ""."""
        names = [option.name for option in self.options]
        return owners_of(flag) or nearest(flag, names, write=flag_of)

    def invoke(self, ctx: click.Context) -> Any:
        with self._convert_names_in_errors():
            return super().invoke(ctx)

    @contextmanager
    def _convert_names_in_errors(self) -> Iterator[None]:
        """Write options in errors as flags, not as names of Python."""
        names = {option.name for option in self.options}

        def with_flag(match: re.Match[str]) -> str:
            return f"option '{flag_of(match[1])}'" if match[1] in names else match[0]

        try:
            yield
        except BadConfig as error:
            raise BadConfig(_OPTION.sub(with_flag, str(error))) from error

    def train(
        self,
        env: str,
        name: str | None,
        out: Path,
        json: bool,
        quiet: bool,
        print_config: bool,
        seeds: str | None,
        jobs: int | None,
        until: int | None,
        **typed: object,  # read from the context, which knows their sources
    ) -> None:
        from rlplug_cli.threads import one_thread  # help does not need it

        one_thread()
        refuse_path(name)
        context = click.get_current_context()
        request = self.request(context)
        _refuse_window(request.values)
        _check_seeds(seeds, jobs, until)
        output: dict[str, Any] = {"name": name, "out": out, "as_json": json, "quiet": quiet}
        if print_config:
            echo(config_text(request, self.options))
        elif seeds is not None:
            from rlplug_cli.sweep.grid import refuse_seed
            from rlplug_cli.sweep.seeds import run_seeds

            if "," in seeds:
                refuse_seed(request.origins)
            self.probe(request)
            words = [self.algorithm, env, *self.user_words(context)]
            run_seeds(words, request.values, seeds, jobs=jobs, **output)
        else:
            from rlplug_cli.training import train

            train(request, **output, until=until)

    def request(self, context: click.Context) -> RunRequest:
        """Return the requested run; typed values override those of presets.

        Raises:
            UsageError, BadConfig: a typed option is wrong.
        """
        from rlplug_cli.collecting import collect  # help needs neither
        from rlplug_core.plugins import RunRequest, absolute

        params = context.params
        typed = {name: params[name] for name in params if _was_typed(context, name)}
        values, origins = collect(
            typed | arguments.environment_arguments(context),
            pairs=params["set"],
            file=params["config"],
            options=self.options,
            owner=self.algorithm,
            net=params.get("net"),
            critic_net=params.get("critic_net"),
            project=project_options(self.options, self.algorithm),
        )
        request = RunRequest.make(absolute(self.algorithm), params["env"], values, origins)
        request = request.with_presets()
        by_user = request.origins.get("init_parts") in ("option", "set")
        if by_user and not request.values.get("init"):
            raise UsageError("option '--init-parts' needs --init RUN")
        return request

    def probe(self, request: RunRequest, quiet: bool = False) -> None:
        """Check that a request would start; print a message if that takes long, unless `quiet`.

        Raises:
            UsageError, PluginError: it would fail.
        """
        from rlplug_core.loop import notice
        from rlplug_core.runs import probe

        wait = f"trying {self.algorithm} on {request.source.name}; training starts after that"
        with self._convert_names_in_errors(), nullcontext() if quiet else notice(wait):
            probe(request)

    def user_words(self, context: click.Context) -> list[str]:
        """Return the typed words after ALGORITHM ENV, without seeds and the run directory."""
        words = [*arguments.argument_words(arguments.environment_arguments(context))]
        for parameter in self.get_params(context):
            name = str(parameter.name)
            if not _was_typed(context, name):
                continue
            value = context.params[name]
            if isinstance(parameter, SchemaOption) and parameter.option.name != "seed":
                words += option_words(parameter.option, value)
            elif name in ("set", "config", "net", "critic_net"):
                for item in value if name == "set" else [value]:
                    words += [flag_of(name), str(item)]
        return words

    def format_options(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        records: dict[str, list[tuple[str, str]]] = {
            title: [] for title in sections.titles(self.algorithm)
        }
        options = [
            parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)
        ]
        for option in sorted(options, key=_sort_key):
            if record := option.get_help_record(ctx):
                records[self._section(option)].append(record)
        for title, lines in records.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)

    def _section(self, option: click.Option) -> str:
        names = {declared.name for declared in self.algorithm_options}
        name = option.option.name if isinstance(option, SchemaOption) else option.name
        if isinstance(option, SchemaOption) or name in ("net", "critic_net"):
            return sections.title(str(name), self.algorithm, name in names)
        return "Input and output"


def _refuse_window(values: Mapping[str, object]) -> None:
    """Check that there is a display if the environment opens a window.

    Raises:
        UsageError: there is none.
    """
    if values.get("env.render_mode") == "human":
        from rlplug_core.runs import has_display

        if not has_display():
            raise UsageError(
                "--env.render_mode human needs a display, and there is none; leave it out, and record a video of the "
                "run with: rlplug play RUN --video FILE.mp4"
            )


def _check_seeds(
    seeds: str | None,
    jobs: int | None,
    until: int | None,
) -> None:
    """Raise UsageError if `--until` comes with `--seeds`, or `--jobs` without it."""
    if seeds is not None and until is not None:
        raise UsageError("option '--until' is for a single run; leave out --seeds")
    if seeds is None and jobs:
        raise UsageError("--jobs needs --seeds, as in --seeds 5")


def _was_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) in _BY_USER


def _sort_key(option: click.Option) -> bool:
    """Return False for `--total-timesteps` and `--num-envs`, which come before the options of the algorithm."""
    first = ("total_timesteps", "num_envs")
    return not (isinstance(option, SchemaOption) and option.option.name in first)


def options_of(
    group: Group,
    name: str,
    may_import: bool = True,
) -> tuple[Option, ...]:
    """Return the options of an algorithm, wrapper or controller without presets, from its index or its code.

    Without an index and without `may_import` the result is empty.

    Raises:
        UsageError, PluginError: the plugin does not exist, or it cannot be used.
    """
    owner = f"'{name}'"
    if not is_target(name):
        record = usable(group, name)
        entry, _ = read_index(record)
        if entry is not None:
            return index_options(entry)
        owner = str(record)
    if not may_import:
        return ()
    cls = plugins.LOADERS[group](name)
    try:
        return schema_of(getattr(cls, "Config", Config))
    except (BadConfig, NameError, TypeError) as error:  # a class may annotate fields with anything
        ask = "" if is_target(name) else "; ask its author"
        raise PluginError(f"{owner} has options that cannot be shown: {error}{ask}") from error


def owners_of(flag: str) -> str:
    """Return `"; a2c, ppo and 3 more have it"` for an option of other installed algorithms, or ""."""
    owners: list[str] = []
    for name in plugins.ids("algorithms"):
        entry = None
        with suppress(PluginError):  # a broken plugin has no options
            entry, _ = read_index(usable("algorithms", name))
        if entry is not None and flag in {flag_of(option.name) for option in index_options(entry)}:
            owners.append(name)
    if not owners:
        return ""
    more = f" and {len(owners) - 6} more" if len(owners) > 6 else ""
    return f"; {', '.join(owners[:6])}{more} {'have' if len(owners) > 1 else 'has'} it"


command = Algorithms(
    "run",
    help="Train an algorithm on an environment: rlplug run a2c CartPole-v1. 'rlplug run a2c --help' shows its options.",
    subcommand_metavar="ALGORITHM ENV [OPTIONS]…",
    no_args_is_help=True,
)

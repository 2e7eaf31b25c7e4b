"""`rlplug sweep ALGORITHM,… ENV,…`: trains every algorithm on every environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.arguments import option_name
from rlplug_cli.commands.run import AlgorithmCommand
from rlplug_cli.commands.run import command as run
from rlplug_cli.completion import algorithms, environments
from rlplug_cli.file_checks import refuse_path
from rlplug_cli.output import echo
from rlplug_cli.parameters import REPEATABLE, SchemaOption
from rlplug_cli.shared_options import many_runs
from rlplug_cli.sweep.grid import Choice, axis, digest, refuse_seed, seeds, split_words, tasks
from rlplug_cli.sweep.manifest import Task
from rlplug_cli.threads import one_thread
from rlplug_core.config import is_target
from rlplug_core.errors import PluginError, UsageError, did_you_mean
from rlplug_core.plugins import find

if TYPE_CHECKING:
    from rlplug_cli.sweep.runner import PlaceMaker
    from rlplug_core.plugins import RunRequest


@click.command("sweep", context_settings={"ignore_unknown_options": True})
@click.argument(
    "algorithms",
    metavar="ALGORITHM,…",
    shell_complete=algorithms,
)
@click.argument(
    "envs",
    metavar="ENV,…",
    shell_complete=environments,
)
@click.option(
    "--seeds", "numbers", default="5", metavar="N|A,B,…", help="Number of seeds, or their list  [5]"
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="[ALGORITHM:]NAME=A,B,…",
    help="Alternative values of an option.",
)
@click.option(
    "--on",
    metavar="PLACE",
    default="local",
    help="Place of the runs: local, ray, ray://HOST:PORT, slurm  [local]",
)
@click.option(
    "--sbatch",
    multiple=True,
    metavar="OPTION",
    help="An option of sbatch, such as --sbatch --time=4:00:00.",
)
@many_runs("the sweep's directory  [from the command]", "[OPTION A,B,…]…")
def command(
    algorithms: str,
    envs: str,
    numbers: str,
    pairs: tuple[str, ...],
    jobs: int | None,
    name: str | None,
    out: Path,
    on: str,
    sbatch: tuple[str, ...],
    json: bool,
    words: tuple[str, ...],
) -> None:
    """Train every ALGORITHM on every ENV, over seeds and alternatives of options, as many runs at once as cores allow.

    Any option of the algorithms and of every run may follow, with alternatives between commas (between semicolons if a
    value contains commas). Type the same command again to resume interrupted runs and start missing ones; finished runs
    are not repeated. With more seeds it adds them.
    """
    refuse_path(name)
    algorithm_names, env_names = _split_names(algorithms, envs)
    axes = {plugin: _axes(plugin, pairs, words, algorithm_names) for plugin in algorithm_names}
    grid = tasks(algorithm_names, env_names, axes, seeds(numbers))
    one_thread()
    _check(grid, local=on == "local")
    directory = out / (name or _default_name(algorithm_names, env_names, [*pairs, *words]))
    if on == "slurm":
        from rlplug_cli.sweep.slurm import submit_sweep

        echo(submit_sweep(directory, grid, _cost, sbatch))
        return
    from rlplug_cli.sweep.runner import run_sweep

    run_sweep(
        "sweep",
        directory,
        grid,
        options=_task_options,
        costs=_cost,
        jobs=jobs,
        as_json=json,
        make_place=_place_maker(on, algorithm_names),
    )


def _split_names(algorithms: str, envs: str) -> tuple[list[str], list[str]]:
    """Return the names of the algorithms and of the environments.

    Raises:
        UsageError: an option comes before them, or a name is missing.
    """
    if algorithms.startswith("-") or envs.startswith("-"):
        raise UsageError(
            "put options after the environments: rlplug sweep ALGORITHM,… ENV,… --seeds 5"
        )
    return split_words(algorithms, "algorithm"), split_words(envs, "environment")


def _check(grid: Sequence[Task], local: bool) -> None:
    """Check the tasks' options before anything is written, and that runs on this machine would start.

    Raises:
        UsageError, PluginError: a task would fail.
    """
    from rlplug_core.loop import notice

    with notice("trying the algorithms on the environments; training starts after that"):
        for algorithm, env, words in dict.fromkeys(
            (task.algorithm, task.env, task.words) for task in grid
        ):
            request = _task_request(algorithm, env, words)
            if local:  # another place may have other devices and packages
                try:
                    algorithm_command(algorithm).probe(request, quiet=True)
                except (UsageError, PluginError) as error:
                    raise type(error)(f"{algorithm} on {env}: {error}") from error


@cache
def _task_request(
    algorithm: str,
    env: str,
    words: tuple[str, ...],
) -> RunRequest:
    """Return the run that a task's words ask for."""
    command = algorithm_command(algorithm)
    with command.make_context(algorithm, [env, *words]) as context:
        request = command.request(context)
        refuse_seed(request.origins)
        return request


def _task_options(task: Task) -> dict[str, Any]:
    """Return the option values of a task, with presets and the defaults of every run."""
    from rlplug_cli.sweep.seeds import with_defaults

    return with_defaults(_task_request(task.algorithm, task.env, task.words).values)


def _cost(task: Task) -> int:
    from rlplug_cli.sweep.seeds import cost

    return cost(task.algorithm, _task_options(task))


def _default_name(
    algorithms: Sequence[str],
    envs: Sequence[str],
    words: Sequence[str],
) -> str:
    """Return the directory's name without `--name`: always the same for the same command."""
    lists = ["+".join(name.rpartition(":")[2] for name in names) for names in (algorithms, envs)]
    name = f"sweep-{'-'.join(lists)[:60]}-{digest([*algorithms, *envs, *words])}"
    return name.replace("/", "-")


def _place_maker(on: str, algorithms: Sequence[str]) -> PlaceMaker | None:
    """Return the maker of a Ray place with the distributions of the algorithms, or None for this machine."""
    if on == "local":
        return None
    from rlplug_cli.sweep.ray_place import on_ray

    names = [name for name in algorithms if not is_target(name)]
    distributions = {find("algorithms", name).distribution for name in names}
    return partial(on_ray, on, sorted({"rlplug-core", "rlplug-cli", *distributions}))


def algorithm_command(algorithm: str) -> AlgorithmCommand:
    """Return the command of an algorithm."""
    command = run.get_command(click.get_current_context(), algorithm)
    assert isinstance(command, AlgorithmCommand)
    return command


def option_of(command: AlgorithmCommand, flag: str) -> click.Option:
    """Return the option of a flag that a sweep or a study may set.

    Raises:
        UsageError: the option does not exist, or only `rlplug run` has it.
    """
    flags = {
        name: parameter
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    option = flags.get(flag.replace("_", "-"))
    if not isinstance(option, click.Option):
        hint = command.suggestion(flag) or did_you_mean(flag, flags)
        raise UsageError(f"{command.algorithm} has no option '{flag}'{hint}")
    if not isinstance(option, SchemaOption) and option.name not in (
        "set",
        "config",
        "net",
        "critic_net",
    ):
        raise UsageError(f"option '{flag}' works only with 'rlplug run'; leave it out")
    return option


def _axes(
    algorithm: str,
    pairs: Sequence[str],
    words: Sequence[str],
    algorithms: Sequence[str],
) -> list[list[Choice]]:
    """Return the alternatives of one algorithm's options, from `--set` and from its own options."""
    command = algorithm_command(algorithm)
    types = {option.name: option.type for option in command.options}
    choices = list[tuple[str, list[Choice]]]()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        owner, colon, key = name.rpartition(":")
        if not equals:
            raise UsageError(f"--set {pair}: write --set name=value, or --set name=value,value")
        if colon and owner not in algorithms:
            raise UsageError(f"--set {pair}: '{owner}' is not one of {', '.join(algorithms)}")
        if not colon or owner == algorithm:
            kind = types.get(key, "str")
            choices.append((key, axis(key, ("--set", f"{key}="), text, kind)))
    choices += _option_choices(command, words)
    names = [name for name, _ in choices if types.get(name) not in REPEATABLE]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"option '{name}' of {algorithm} is given twice; put its alternatives between commas"
            )
    return [alternatives for _, alternatives in choices]


def _option_choices(
    command: AlgorithmCommand,
    words: Sequence[str],
) -> list[tuple[str, list[Choice]]]:
    """Return the names and the alternatives of the typed options."""
    choices: list[tuple[str, list[Choice]]] = []
    for flag, parameter, value in parse_options(command, words):
        option = parameter.option if isinstance(parameter, SchemaOption) else None
        name = flag if option is None else option.name
        if value is None:
            choices.append((name, [((flag,), "")]))
        elif parameter is None:
            choices.append((name, axis(option_name(flag), (f"{flag}=",), value, "str")))
        else:
            label = flag.lstrip("-").replace("-", "_")
            kind = "repeated" if option is None else option.type
            choices.append((name, axis(label, (flag,), value, kind)))
    return choices


def parse_options(
    command: AlgorithmCommand,
    words: Sequence[str],
) -> Iterator[tuple[str, click.Option | None, str | None]]:
    """Yield the flag, the option and the value of each typed option.

    The option of `--env.NAME` is None, and so is the value of a flag that takes none.

    Raises:
        UsageError: an option does not exist, lacks its value, or has a value and takes none.
    """
    remaining = iter(words)
    for word in remaining:
        flag, equals, text = word.partition("=")
        parameter = None if option_name(flag) else option_of(command, flag)
        if parameter is not None and parameter.is_flag:
            _refuse_value(parameter, flag, equals)
            yield flag, parameter, None
            continue
        value = text if equals else next(remaining, None)
        if value is None:
            raise UsageError(f"option '{flag}' needs a value")
        yield flag, parameter, value


def _refuse_value(parameter: click.Option, flag: str, equals: str) -> None:
    """Refuse a value after a flag; `equals` is "=" if there is one, else "".

    Raises:
        UsageError: the flag has a value.
    """
    if equals:
        name = parameter.option.name if isinstance(parameter, SchemaOption) else str(parameter.name)
        raise UsageError(
            f"option '{flag}' takes no value; for alternatives write --set {name}=yes,no"
        )

"""`rlplug sweep ALGORITHM,… ENV,…`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.arguments import option_name
from rlplug_cli.commands.run import AlgorithmCommand, refuse_path
from rlplug_cli.commands.run import command as run
from rlplug_cli.output import echo
from rlplug_cli.parameters import SEVERAL, SchemaOption
from rlplug_cli.sweep.grid import Choice, axis, digest, listed, refuse_seed, seeds, tasks
from rlplug_cli.sweep.manifest import Task
from rlplug_core.config.import_string import is_target
from rlplug_core.errors import PluginError, UsageError, did_you_mean
from rlplug_core.plugins import find

if TYPE_CHECKING:
    from rlplug_cli.sweep.runner import Elsewhere


@click.command("sweep", context_settings={"ignore_unknown_options": True})
@click.argument("algorithms", metavar="ALGORITHM,…")
@click.argument("envs", metavar="ENV,…")
@click.option(
    "--seeds", "numbers", default="5", metavar="N|A,B,…", help="How many seeds, or which  [5]"
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="[ALGORITHM:]NAME=A,B,…",
    help="Alternatives of an option.",
)
@click.option("--jobs", type=click.IntRange(1), help="How many runs at once  [as cores allow]")
@click.option("--name", help="The sweep's directory  [from what is swept]")
@click.option(
    "--out", type=click.Path(path_type=Path), default="runs", help="Where it is made  [runs]"
)
@click.option(
    "--on",
    metavar="PLACE",
    default="local",
    help="Where: local, ray, ray://HOST:PORT, slurm  [local]",
)
@click.option(
    "--sbatch",
    multiple=True,
    metavar="OPTION",
    help="An option of sbatch, as --sbatch --time=4:00:00.",
)
@click.option(
    "--json", is_flag=True, help="Write the result as JSON to stdout, progress to stderr."
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION A,B,…]…")
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

    Any option of the algorithms and of every run may follow, with alternatives between commas (between semicolons where
    a value holds commas itself). Typed again, the same command does what is missing or was interrupted, and nothing
    twice; with more seeds it adds them.
    """
    refuse_path(name)
    if algorithms.startswith("-") or envs.startswith("-"):
        raise UsageError(
            "options belong behind the environments: rlplug sweep ALGORITHM,… ENV,… --seeds 5"
        )
    those = listed(algorithms, "algorithm")
    there = listed(envs, "environment")
    axes = {algorithm: _axes(algorithm, pairs, words, those) for algorithm in those}
    found = tasks(those, there, axes, seeds(numbers))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rlplug_cli.sweep.runner import swept
    from rlplug_cli.sweep.seeds import complete, cost

    @cache
    def resolved(algorithm: str, env: str, chosen: tuple[str, ...]) -> dict[str, Any]:
        with algorithm_command(algorithm).make_context(algorithm, [env, *chosen]) as context:
            values, origins = _command(context).resolved(context)
            refuse_seed(origins)
            return complete(values)

    for algorithm, env, chosen in dict.fromkeys(
        (task.algorithm, task.env, task.words) for task in found
    ):
        values = resolved(
            algorithm, env, chosen
        )  # what is typed wrong is said before anything is written
        if on == "local":  # another place may have other devices and packages
            _probe(algorithm, env, values)
    directory = out / (name or _usual_name(those, there, [*pairs, *words]))

    def costs(task: Task) -> int:
        return cost(task.algorithm, resolved(task.algorithm, task.env, task.words))

    if on == "slurm":
        from rlplug_cli.sweep.slurm import hand_over

        echo(hand_over(directory, found, costs, sbatch))
        return
    swept(
        "sweep",
        directory,
        found,
        resolved=lambda task: resolved(task.algorithm, task.env, task.words),
        costs=costs,
        jobs=jobs,
        as_json=json,
        on=_elsewhere(on, those),
    )


def _usual_name(algorithms: Sequence[str], envs: Sequence[str], words: Sequence[str]) -> str:
    """The directory's name where nobody gave one: the same for the same command."""
    stem = "-".join(
        ["+".join(word.rpartition(":")[2] for word in part) for part in (algorithms, envs)]
    )
    return f"sweep-{stem[:60]}-{digest([*algorithms, *envs, *words])}".replace("/", "-")


def _elsewhere(on: str, algorithms: Sequence[str]) -> Elsewhere | None:
    """The place of the tasks, if not here: a Ray cluster whose nodes have what the algorithms come in."""
    if on == "local":
        return None
    from rlplug_cli.sweep.ray_place import on_ray

    those = {find("algorithms", name).distribution for name in algorithms if not is_target(name)}
    return partial(on_ray, on, sorted({"rlplug-core", "rlplug-cli", *those}))


def algorithm_command(algorithm: str) -> AlgorithmCommand:
    """The command of an algorithm."""
    found = run.get_command(click.get_current_context(), algorithm)
    assert isinstance(found, AlgorithmCommand)
    return found


def option_of(command: AlgorithmCommand, flag: str) -> click.Option:
    """The option that several runs may be told by a flag.

    Raises:
        UsageError: there is none, or it says what a single command does.
    """
    flags = {flag: one for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    one = flags.get(flag.replace("_", "-"))
    if not isinstance(one, click.Option):
        near = command.near(flag) or did_you_mean(flag, flags)
        raise UsageError(f"{command.algorithm} has no option '{flag}'{near}")
    if not isinstance(one, SchemaOption) and one.name not in ("set", "config", "net"):
        raise UsageError(f"option '{flag}' is of 'rlplug run'; leave it out, or type it there")
    return one


def _probe(algorithm: str, env: str, values: Mapping[str, object]) -> None:
    """Refuse a pair that would not begin, by what a single run would say.

    Raises:
        UsageError, PluginError: it would not.
    """
    try:
        algorithm_command(algorithm).probe(env, values)
    except (UsageError, PluginError) as error:
        raise type(error)(f"{algorithm} on {env}: {error}") from error


def _command(context: click.Context) -> AlgorithmCommand:
    assert isinstance(context.command, AlgorithmCommand)
    return context.command


def _axes(
    algorithm: str, pairs: Sequence[str], words: Sequence[str], algorithms: Sequence[str]
) -> list[list[Choice]]:
    """The alternatives of one algorithm's options, from `--set` and from its own options."""
    command = algorithm_command(algorithm)
    types = {one.name: one.type for one in (*command.own, *command.run_options)}
    found = list[tuple[str, list[Choice]]]()
    for pair in pairs:
        name, equals, text = pair.partition("=")
        owner, colon, rest = name.rpartition(":")
        if not equals:
            raise UsageError(f"--set {pair}: write --set name=value, or --set name=value,value")
        if colon and owner not in algorithms:
            raise UsageError(f"--set {pair}: '{owner}' is none of {', '.join(algorithms)}")
        if not colon or owner == algorithm:
            found.append((rest, axis(rest, ("--set", f"{rest}="), text, types.get(rest, "str"))))
    found += _typed(command, words)
    names = [name for name, _ in found if types.get(name) not in SEVERAL]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"option '{name}' of {algorithm} is given twice; put its alternatives between commas"
            )
    return [choices for _, choices in found]


def _typed(command: AlgorithmCommand, words: Sequence[str]) -> list[tuple[str, list[Choice]]]:
    """The names and the alternatives of what was typed as options."""
    found: list[tuple[str, list[Choice]]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, text = word.partition("=")
        if option_name(flag):
            choices = axis(
                option_name(flag), (f"{flag}=",), text if equals else "".join(rest[:1]), "str"
            )
            found.append((flag, choices))
            rest = rest if equals else rest[1:]
            continue
        one = option_of(command, flag)
        option = one.option if isinstance(one, SchemaOption) else None
        name = flag if option is None else option.name
        if one.is_flag or (option is not None and option.type == "bool"):
            refuse_value(one, flag, equals)
            found.append((name, [((flag,), "")]))
            continue
        if not equals and not rest:
            raise UsageError(f"option '{flag}' needs a value")
        kind = "repeated" if option is None else option.type
        choices = axis(
            flag.lstrip("-").replace("-", "_"), (flag,), text if equals else rest.pop(0), kind
        )
        found.append((name, choices))
    return found


def refuse_value(one: click.Option, flag: str, value: str) -> None:
    """Refuse a value behind a flag.

    Raises:
        UsageError: there is one.
    """
    if value:
        name = one.option.name if isinstance(one, SchemaOption) else str(one.name)
        raise UsageError(
            f"option '{flag}' takes no value; for alternatives write --set {name}=yes,no"
        )

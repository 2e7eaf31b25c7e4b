"""`rlplug tune ALGORITHM ENV`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlplug_cli.arguments import spelled, taken
from rlplug_cli.commands.run import AlgorithmCommand, refuse_path
from rlplug_cli.commands.sweep import algorithm_command, option_of, refuse_value
from rlplug_cli.completion import environments
from rlplug_cli.output import echo, echo_json
from rlplug_cli.parameters import SchemaOption
from rlplug_cli.parameters import flag as flag_of
from rlplug_cli.sweep.grid import refuse_seed, seeds
from rlplug_cli.tune.tune_options import Asked
from rlplug_core.config.numbers import figures
from rlplug_core.config.options import Range
from rlplug_core.errors import RlplugError, UsageError

if TYPE_CHECKING:
    from rlplug_cli.tune.goal import Goal
    from rlplug_cli.tune.outcome import Outcome

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("tune", context_settings={"ignore_unknown_options": True})
@click.argument("algorithm")
@click.argument("env", shell_complete=environments)
@click.option("--trials", type=click.IntRange(1), default=30, help="How many trials in all  [30]")
@click.option(
    "--seeds", "numbers", default="1", metavar="N|A,B,…", help="Seeds of every trial  [1]"
)
@click.option("--space", type=_FILE, help="Ranges from a TOML file  [those the algorithm declares]")
@click.option(
    "--objective",
    type=click.Choice(["last", "best", "mean"]),
    default="last",
    help="Final return of the last weights or the best checkpoint, or the mean of evaluations  [last]",
)
@click.option(
    "--prune/--no-prune",
    default=True,
    help="End trials whose evaluations are below the median  [yes]",
)
@click.option(
    "--warmup",
    type=click.FloatRange(0, 1),
    default=0.3,
    help="The share of a run before pruning  [0.3]",
)
@click.option(
    "--storage", metavar="URL", help="Optuna's storage  [study.db in the study's directory]"
)
@click.option("--jobs", type=click.IntRange(1), help="How many runs at once  [as cores allow]")
@click.option(
    "--sampler-seed", type=click.IntRange(0), default=0, help="Of what draws options  [0]"
)
@click.option("--export", type=_FILE, help="Write the best options to a TOML file for --config.")
@click.option("--export-preset", type=_FILE, help="Write the best options as a preset's table.")
@click.option("--name", help="The study's directory  [from what is searched]")
@click.option(
    "--out", type=click.Path(path_type=Path), default="runs", help="Where it is made  [runs]"
)
@click.option(
    "--json", is_flag=True, help="Write the result as JSON to stdout, progress to stderr."
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION RANGE]…")
def command(
    algorithm: str,
    env: str,
    words: tuple[str, ...],
    trials: int,
    numbers: str,
    space: Path | None,
    objective: str,
    prune: bool,
    warmup: float,
    storage: str | None,
    jobs: int | None,
    sampler_seed: int,
    name: str | None,
    out: Path,
    export: Path | None,
    export_preset: Path | None,
    json: bool,
) -> None:
    """Search for the best options of ALGORITHM on ENV; typed again, the same command goes on.

    Any option of the algorithm and of every run may follow: with a range (`--learning-rate 1e-5..1e-2:log`,
    `--n-steps 16..256`) or choices (`--clip-range 0.1,0.2,0.3`; between semicolons where a value holds commas) it is
    searched, with a single value it is fixed, as arguments of ENV (`--env.length 6`) always are. Without a range, those
    that the algorithm declares are searched.
    """
    refuse_path(name)
    if algorithm.startswith("-") or env.startswith("-"):
        raise UsageError(
            "options belong behind the environment: rlplug tune ALGORITHM ENV --trials 30"
        )
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asked = Asked(
        trials=trials,
        seeds=numbers,
        space=space,
        objective=objective,
        prune=prune,
        warmup=warmup,
        jobs=jobs,
        sampler_seed=sampler_seed,
    )
    goal, options = _goal(algorithm, env, words, asked)
    directory = out / name if name else _usual(goal, out)
    from rlplug_cli.tune.outcome import tuned

    found = tuned(directory, goal, fixed=options, storage=storage, asked=asked, as_json=json)
    _write(found, env, export, export_preset)
    if json:
        echo_json(found.as_json())
    else:
        echo(found.text())
    if found.best is None:
        raise RlplugError(_nothing(found, export, export_preset))


def _usual(goal: Goal, out: Path) -> Path:
    """The directory of a study that nobody named: the same for the same search."""
    stem = (
        f"tune-{goal.algorithm.rpartition(':')[2].lower()}-{goal.env.rpartition(':')[2]}".replace(
            "/", "-"
        )
    )
    usual, former = (out / f"{stem}-{digest}" for digest in (goal.digest, goal.former))
    return former if former.exists() and not usual.exists() else usual


def _goal(
    algorithm: str, env: str, words: tuple[str, ...], asked: Asked
) -> tuple[Goal, dict[str, object]]:
    """Return what to search, and the options that someone fixed."""
    from rlplug_cli.sweep.seeds import complete, cost
    from rlplug_cli.tune.goal import Goal
    from rlplug_cli.tune.space import declared, from_file

    command = algorithm_command(algorithm)
    known = (*command.own, *command.run_options)
    ranges, typed = _typed(command, words)
    more, pairs = ({}, []) if asked.space is None else from_file(asked.space, known, algorithm)
    fixed = [*(word for pair in pairs for word in ("--set", pair)), *typed]
    with command.make_context(algorithm, [env, *fixed]) as context:
        values, origins = command.resolved(context)
    space = _searched(ranges, more or ({} if ranges else declared(command.own)), origins)
    if not space:
        raise UsageError(
            f"{algorithm} declares no ranges; give some, as in --learning-rate 1e-5..1e-2:log"
        )
    refuse_seed(origins | dict.fromkeys(space, "option"))
    said = {name for name, origin in origins.items() if origin != "preset"} - {"seed", *space}
    options = {name: value for name, value in values.items() if name in said}
    whole = complete(values)
    command.probe(env, whole)
    goal = Goal(
        algorithm,
        env,
        options=known,
        words=tuple(fixed),
        fixed=options,
        values=whole,
        space=space,
        seeds=tuple(seeds(asked.seeds)),
        trials=asked.trials,
        objective=asked.objective,
        cores=1 if asked.jobs else cost(algorithm, whole),
    )
    return goal, options


def _searched(
    typed: Mapping[str, Range], others: Mapping[str, Range], origins: Mapping[str, str]
) -> dict[str, Range]:
    """Return the ranges that were typed, and of `others` those of options that nobody gave a value.

    Raises:
        UsageError: an option was given both, a range and a value.
    """
    given = {name for name, origin in origins.items() if origin in ("option", "set")}
    if twice := sorted(given & set(typed)):
        raise UsageError(
            f"option '{flag_of(twice[0])}' is given a range and a value; leave one of them out"
        )
    return {name: one for name, one in {**others, **typed}.items() if name not in given}


def _typed(command: AlgorithmCommand, words: tuple[str, ...]) -> tuple[dict[str, Range], list[str]]:
    """The ranges among what was typed, and the words of all else."""
    from rlplug_cli.tune.space import written

    by_name = {one.name: one for one in (*command.own, *command.run_options)}
    rest, own = taken(words)
    ranges = {}
    fixed = [*spelled(own)]
    while rest:
        flag, equals, text = rest.pop(0).partition("=")
        one = option_of(command, flag)
        if one.is_flag:
            refuse_value(one, flag, equals)
            fixed.append(flag)
            continue
        if not equals and not rest:
            raise UsageError(f"option '{flag}' needs a value")
        text = text if equals else rest.pop(0)
        option = one.option if isinstance(one, SchemaOption) else None
        if one.name == "set" and text.partition("=")[0] in by_name:
            option = by_name[text.partition("=")[0]]
            text = text.partition("=")[2]
        found = written(option, text, command.algorithm) if option is not None else None
        if option is not None and found is not None:
            ranges[option.name] = found
        else:
            fixed += [
                flag,
                f"{option.name}={text}" if option is not None and one.name == "set" else text,
            ]
    return ranges, fixed


def _nothing(found: Outcome, *exports: Path | None) -> str:
    """Return why there are no best options, and what was not written."""
    from rlplug_cli.tune.search import titles

    said = f": {found.failure}" if found.failure else ""
    lost = "".join(f"; {path} is not written" for path in exports if path is not None)
    outcome = f"no trial of {found.directory.name} is complete ({titles(found.trials)})"
    return f"{outcome}{said}{lost}; --trials says how many"


def _write(found: Outcome, env: str, config: Path | None, preset: Path | None) -> None:
    from rlplug_cli.commands.compare import written
    from rlplug_cli.tune.export import as_config, as_preset

    if found.best is not None:
        comment = f"trial {found.best['number']} of {found.directory.name}: return {figures(found.best['value'])}"
        if config is not None:
            written(config, as_config(found.options, comment))
        if preset is not None:
            written(preset, as_preset(found.options, env, comment))

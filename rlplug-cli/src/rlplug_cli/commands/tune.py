"""`rlplug tune ALGORITHM ENV`: searches for the best options with Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlplug_cli.arguments import argument_words, split_arguments
from rlplug_cli.commands.run import AlgorithmCommand
from rlplug_cli.commands.sweep import algorithm_command, parse_options
from rlplug_cli.completion import algorithms, environments
from rlplug_cli.file_checks import refuse_path
from rlplug_cli.output import echo, echo_json, write_text
from rlplug_cli.parameters import SchemaOption, flag_of
from rlplug_cli.shared_options import FILE, many_runs
from rlplug_cli.sweep.grid import refuse_seed, seeds
from rlplug_cli.threads import one_thread
from rlplug_cli.tune.strategies import PRUNERS, SAMPLERS, should_prune
from rlplug_cli.tune.tune_options import TuneOptions
from rlplug_core.config import Range, figures
from rlplug_core.errors import RlplugError, UsageError, warn

if TYPE_CHECKING:
    from rlplug_cli.tune.goal import Goal
    from rlplug_cli.tune.outcome import Outcome
    from rlplug_core.plugins import RunRequest


@click.command("tune", context_settings={"ignore_unknown_options": True})
@click.argument("algorithm", shell_complete=algorithms)
@click.argument(
    "env",
    shell_complete=environments,
)
@click.option(
    "--trials",
    type=click.IntRange(1),
    default=30,
    help="Total number of trials  [30]",
)
@click.option(
    "--seeds", "numbers", default="1", metavar="N|A,B,…", help="Seeds of every trial  [1]"
)
@click.option(
    "--space", type=FILE, help="Ranges from a TOML file  [those that the algorithm declares]"
)
@click.option(
    "--objective",
    default="last",
    metavar="NAME[,NAME…]",
    help="last (or score), best: final return of the last weights or the best checkpoint; "
    "mean: mean of all evaluations; steps_per_second; several give a Pareto front  [last]",
)
@click.option(
    "--prune/--no-prune",
    default=None,
    help="End trials with low evaluations early  [yes, with one objective]",
)
@click.option(
    "--sampler",
    type=click.Choice(SAMPLERS),
    default="tpe",
    help="Optuna sampler that draws the values  [tpe]",
)
@click.option(
    "--pruner",
    type=click.Choice(PRUNERS),
    help="Optuna pruner that ends trials early  [median]",
)
@click.option(
    "--warmup",
    type=click.FloatRange(0, 1),
    default=0.3,
    help="Fraction of a run before pruning starts  [0.3]",
)
@click.option(
    "--storage", metavar="URL", help="Optuna's storage  [study.db in the study's directory]"
)
@click.option(
    "--sampler-seed",
    type=click.IntRange(0),
    default=0,
    help="Seed of the sampler  [0]",
)
@click.option(
    "--export",
    type=FILE,
    help="Write the best options to a TOML file for --config.",
)
@click.option(
    "--export-preset",
    type=FILE,
    help="Write the best options as a table of a preset.",
)
@many_runs("the study's directory  [from the search]", "[OPTION RANGE]…")
def command(
    algorithm: str,
    env: str,
    words: tuple[str, ...],
    trials: int,
    numbers: str,
    space: Path | None,
    objective: str,
    prune: bool | None,
    sampler: str,
    pruner: str | None,
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
    """Search for the best options of ALGORITHM on ENV; the same command typed again continues.

    Any option of the algorithm and of every run may follow. With a range (`--learning-rate 1e-5..1e-2:log`,
    `--n-steps 16..256`) or choices (`--clip-range 0.1,0.2,0.3`; between semicolons if a value contains commas) it is
    searched. With a single value it is fixed, as are arguments of ENV (`--env.length 6`). Without any range, the search
    covers the ranges that the algorithm declares.
    """
    refuse_path(name)
    if algorithm.startswith("-") or env.startswith("-"):
        raise UsageError("put options after the environment: rlplug tune ALGORITHM ENV --trials 30")
    one_thread()
    from rlplug_cli.tune.goal import parse_objectives

    objective = parse_objectives(objective)
    options = TuneOptions(
        trials=trials,
        seeds=numbers,
        space=space,
        objective=objective,
        prune=should_prune(objective.split(","), prune, pruner, sampler),
        warmup=warmup,
        jobs=jobs,
        sampler_seed=sampler_seed,
        sampler=sampler,
        pruner=pruner or "median",
    )
    goal = search_goal(algorithm, env, words, options)
    directory = out / name if name else _default_directory(goal, out)
    from rlplug_cli.tune.outcome import run_study

    outcome = run_study(directory, goal, storage=storage, tune=options, as_json=json)
    _export(outcome, env, export, export_preset)
    _report(outcome, (export, export_preset), json)


def _default_directory(goal: Goal, out: Path) -> Path:
    """Return the directory of a study without `--name`: always the same for the same search.

    A study that an older version started keeps its directory.
    """
    algorithm = goal.algorithm.rpartition(":")[2].lower()
    stem = f"tune-{algorithm}-{goal.env.rpartition(':')[2]}".replace("/", "-")
    directory = out / f"{stem}-{goal.digest}"
    former = out / f"{stem}-{goal.former_digest}"
    return former if former.exists() and not directory.exists() else directory


def search_goal(
    algorithm: str,
    env: str,
    words: tuple[str, ...],
    tune: TuneOptions,
) -> Goal:
    """Return the goal of the search."""
    from rlplug_cli.sweep.seeds import cost, with_defaults
    from rlplug_cli.tune.goal import Goal

    command = algorithm_command(algorithm)
    typed, other_ranges, fixed = _read_words(command, words, tune.space)
    with command.make_context(algorithm, [env, *fixed]) as context:
        request = command.request(context)
    space = _space(algorithm, typed, other_ranges, request.origins)
    refuse_seed({**request.origins, **dict.fromkeys(space, "option")})
    command.probe(request)
    values = with_defaults(request.values)
    return Goal(
        algorithm,
        env,
        options=command.options,
        words=tuple(fixed),
        fixed=_values_of_user(request, {"seed", *space}),
        values=values,
        space=space,
        seeds=tuple(seeds(tune.seeds)),
        trials=tune.trials,
        objective=tune.objective,
        cores=1 if tune.jobs else cost(algorithm, values),
    )


def _read_words(
    command: AlgorithmCommand,
    words: tuple[str, ...],
    file: Path | None,
) -> tuple[dict[str, Range], dict[str, Range], list[str]]:
    """Return the typed ranges, other ranges, and the words that all trials share.

    The others are those of the file of `--space`; without any range they are those that the algorithm declares.
    """
    from rlplug_cli.tune.space import from_file, ranges_of

    typed, fixed = _split_ranges(command, words)
    other_ranges, pairs = from_file(file, command.options, command.algorithm) if file else ({}, [])
    if not typed and not other_ranges:
        other_ranges = ranges_of(command.algorithm_options)
    return typed, other_ranges, [*(word for pair in pairs for word in ("--set", pair)), *fixed]


def _values_of_user(
    request: RunRequest,
    excluded: set[str],
) -> dict[str, object]:
    """Return the values that the user set and that no trial changes: all except presets and `excluded`."""
    names = {name for name, origin in request.origins.items() if origin != "preset"} - excluded
    return {name: value for name, value in request.values.items() if name in names}


def _space(
    algorithm: str,
    typed: Mapping[str, Range],
    other_ranges: Mapping[str, Range],
    origins: Mapping[str, str],
) -> dict[str, Range]:
    """Return the typed ranges, and those of `other_ranges` for options that the user did not set.

    Raises:
        UsageError: an option has both a range and a value, or no option has a range.
    """
    set_by_user = {name for name, origin in origins.items() if origin != "preset"}
    typed_values = {name for name, origin in origins.items() if origin in ("option", "set")}
    if conflicting := sorted(typed_values & set(typed)):
        raise UsageError(
            f"option '{flag_of(conflicting[0])}' is given a range and a value; leave one of them out"
        )
    if fixed := sorted(set_by_user & set(other_ranges) - set(typed)):
        warn(f"not searched, because its value is fixed: {', '.join(map(flag_of, fixed))}")
    searched = {name: range for name, range in other_ranges.items() if name not in set_by_user}
    if not searched and not typed:
        raise UsageError(
            f"{algorithm} declares no ranges; give some, as in --learning-rate 1e-5..1e-2:log"
        )
    return searched | dict(typed)


def _split_ranges(
    command: AlgorithmCommand,
    words: tuple[str, ...],
) -> tuple[dict[str, Range], list[str]]:
    """Return the ranges among the typed words, and all other words."""
    other_words, arguments = split_arguments(words)
    ranges = {}
    fixed = [*argument_words(arguments)]
    for flag, parameter, value in parse_options(command, other_words):
        if parameter is None or value is None:
            fixed.append(flag)
            continue
        name, range = _range_of(command, parameter, value)
        if range is None:
            fixed += [flag, value]
        else:
            ranges[name] = range
    return ranges, fixed


def _range_of(
    command: AlgorithmCommand,
    parameter: click.Option,
    value: str,
) -> tuple[str, Range | None]:
    """Return the name of a typed option, also in `--set NAME=RANGE`, and its range; None for a single value."""
    from rlplug_cli.tune.space import parse_range

    by_name = {option.name: option for option in command.options}
    option = parameter.option if isinstance(parameter, SchemaOption) else None
    name, _, text = value.partition("=")
    if parameter.name == "set" and name in by_name:
        return name, parse_range(by_name[name], text, command.algorithm)
    if option is None:
        return "", None
    return option.name, parse_range(option, value, command.algorithm)


def _report(
    outcome: Outcome,
    exports: Sequence[Path | None],
    json: bool,
) -> None:
    """Print the result.

    Raises:
        RlplugError: no trial has a result.
    """
    if json:
        echo_json(outcome.as_json())
    else:
        echo(outcome.text())
    if outcome.best is None:
        raise RlplugError(_no_result(outcome, exports))


def _no_result(outcome: Outcome, exports: Sequence[Path | None]) -> str:
    """Return why no trial has a result, and which files were not written."""
    from rlplug_cli.tune.search import state_counts

    reason = f": {outcome.failure}" if outcome.failure else ""
    missing = "".join(f"; {path} is not written" for path in exports if path is not None)
    counts = state_counts(outcome.trials)
    return f"no trial of {outcome.directory.name} is complete ({counts}){reason}{missing}; add trials with --trials"


def _export(
    outcome: Outcome,
    env: str,
    config: Path | None,
    preset: Path | None,
) -> None:
    """Write the best options to the files that the user named."""
    from rlplug_cli.render.config import as_config, as_preset

    if outcome.best is None:
        return
    values = outcome.best.get("values") or [outcome.best["value"]]
    pairs = zip(outcome.headings, values, strict=True)
    scores = ", ".join(f"{name} {figures(value)}" for name, value in pairs)
    comment = f"trial {outcome.best['number']} of {outcome.directory.name}: {scores}"
    if config is not None:
        write_text(config, as_config(outcome.options, comment))
    if preset is not None:
        write_text(preset, as_preset(outcome.options, env, comment))

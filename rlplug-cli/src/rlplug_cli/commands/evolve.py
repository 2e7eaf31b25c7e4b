"""`rlplug evolve ALGORITHM ENV`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlplug_cli.commands.tune import search_goal
from rlplug_cli.completion import algorithms, environments
from rlplug_cli.file_checks import refuse_path
from rlplug_cli.output import echo, echo_json
from rlplug_cli.shared_options import FILE, many_runs
from rlplug_cli.sweep.grid import digest
from rlplug_cli.threads import one_thread
from rlplug_cli.tune.tune_options import TuneOptions
from rlplug_core.errors import UsageError

if TYPE_CHECKING:
    from rlplug_cli.evolve.evolution import Plan
    from rlplug_cli.tune.goal import Goal


@click.command("evolve", context_settings={"ignore_unknown_options": True})
@click.argument("algorithm", shell_complete=algorithms)
@click.argument(
    "env",
    shell_complete=environments,
)
@click.option("--members", type=click.IntRange(1), default=8, help="Size of the population  [8]")
@click.option(
    "--every",
    type=click.IntRange(1),
    metavar="STEPS",
    help="Env steps between exchanges  [a tenth of --total-timesteps]",
)
@click.option(
    "--rule",
    default="truncation",
    metavar="NAME",
    help="Rule of the exchanges: NAME:option=value, or ./file.py:Class  [truncation]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    help="Seed of the first member and of exchanges; other members use the next seeds  [1]",
)
@click.option(
    "--space", type=FILE, help="Ranges from a TOML file  [those that the algorithm declares]"
)
@many_runs(
    "the population's directory  [from the command]", "[OPTION RANGE]…", "Members at the same time"
)
def command(
    algorithm: str,
    env: str,
    words: tuple[str, ...],
    members: int,
    every: int | None,
    rule: str,
    seed: int,
    space: Path | None,
    jobs: int | None,
    name: str | None,
    out: Path,
    json: bool,
) -> None:
    """Train a population of ALGORITHM on ENV; the worst members take the state and options of the best.

    Any option of the algorithm and of every run may follow. With a range (`--learning-rate 1e-5..1e-2:log`) or choices
    (`--clip-range 0.1,0.2,0.3`) it is searched: each member starts with a random value, and exchanges change it.
    Without any range, the search covers the ranges that the algorithm declares. The same command typed again continues
    a population that was stopped.
    """
    refuse_path(name)
    if algorithm.startswith("-") or env.startswith("-"):
        raise UsageError(
            "put options after the environment: rlplug evolve ALGORITHM ENV --members 8"
        )
    one_thread()
    from rlplug_cli.evolve.outcome import raise_failures, run_population

    options = _search_options(members, seed, space, jobs)
    plan = _plan(search_goal(algorithm, env, words, options), every, members, rule)
    stem = f"evolve-{algorithm.rpartition(':')[2].lower()}-{env.rpartition(':')[2]}"
    directory = out / (name or f"{stem.replace('/', '-')}-{digest([plan.search])}")
    outcome = run_population(directory, plan, jobs, json)
    if json:
        echo_json(outcome.as_json())
    else:
        echo(outcome.text())
    raise_failures(outcome)


def _search_options(
    members: int,
    seed: int,
    space: Path | None,
    jobs: int | None,
) -> TuneOptions:
    """Return the options of the search: each member has a seed."""
    seeds = ",".join(str(seed + number) for number in range(members))
    return TuneOptions(
        trials=1,
        seeds=f"{seeds},",  # one number without a comma would be a count
        space=space,
        objective="population",
        prune=False,
        warmup=0.0,
        jobs=jobs,
        sampler_seed=seed,
    )


def _plan(goal: Goal, every: int | None, members: int, rule: str) -> Plan:
    """Return the plan of a population.

    Raises:
        UsageError, PluginError: `every` does not fit the run, or the rule is wrong.
    """
    from rlplug_cli.evolve.evolution import Plan, check_chunks, rule_of
    from rlplug_core.plugins import PartSpec

    if "eval_every" in goal.fixed:
        raise UsageError("members are evaluated at the end of each chunk; leave --eval-every out")
    total = int(str(goal.values["total_timesteps"]))
    every = every or max(1, total // 10)
    check_chunks(every, total, members)
    spec = PartSpec.parse("rule", rule)
    return Plan(goal, every, rule_of(spec.build(), rule), spec.words)

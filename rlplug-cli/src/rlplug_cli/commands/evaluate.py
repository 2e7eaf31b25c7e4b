"""`rlplug evaluate RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlplug_cli.arguments import TakesArguments, single_env_arguments
from rlplug_cli.completion import runs
from rlplug_cli.evaluation_options import condition_options
from rlplug_cli.output import echo, echo_json
from rlplug_cli.render.tables import table
from rlplug_cli.trust import open_run, trust_option
from rlplug_core.config import figures
from rlplug_core.errors import UsageError
from rlplug_core.runs import find_run

if TYPE_CHECKING:
    from rlplug_core.loop import Evaluation
    from rlplug_core.runs import Run


@click.command("evaluate", cls=TakesArguments)
@click.argument(
    "run",
    shell_complete=runs,
)
@click.option(
    "--episodes",
    type=click.IntRange(1),
    default=100,
    help="Number of episodes  [100]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    help="Seed of the environments, which run in parallel; play runs episodes one after the other, so only the first "
    "episode is the same  [the run's final evaluation's]",
)
@click.option(
    "--all-checkpoints",
    is_flag=True,
    help="Evaluate every checkpoint of the run, in the order of steps.",
)
@condition_options("Play")
@click.option(
    "--json",
    is_flag=True,
    help="Write the result, with every return, as JSON.",
)
@trust_option
def command(
    run: str,
    episodes: int,
    seed: int | None,
    checkpoint: str,
    all_checkpoints: bool,
    stochastic: bool,
    epsilon: float,
    env: str | None,
    wrap: list[str] | None,
    json: bool,
    trust: bool,
) -> None:
    """Play episodes with a checkpoint of RUN, greedily by default.

    RUN is a path, a name in runs/, an export, or the source of a shared agent, such as hub:OWNER/NAME.
    """
    context = click.get_current_context()
    source = context.get_parameter_source("checkpoint")
    if all_checkpoints and source is not click.core.ParameterSource.DEFAULT:
        raise UsageError(
            "--all-checkpoints plays every checkpoint and --checkpoint one; leave one out"
        )
    opened_run = open_run(run, trust)
    names = opened_run.checkpoints if all_checkpoints else [checkpoint]
    conditions: dict[str, Any] = {
        "stochastic": stochastic,
        "epsilon": epsilon,
        "env": env,
        "arguments": single_env_arguments(context) or {},
        "wrap": wrap,
    }
    results = {name: opened_run.evaluate(episodes, seed, name, **conditions) for name in names}
    if json:
        header = {"run": str(find_run(run)), "seed": _used_seed(opened_run, seed), **conditions}
        rows = [{"checkpoint": name, **plain(result)} for name, result in results.items()]
        echo_json({**header, "checkpoints": rows} if all_checkpoints else {**header, **rows[0]})
    elif all_checkpoints:
        echo(_curve(results))
    else:
        echo(sentence(results[checkpoint], "greedy" if not (stochastic or epsilon) else "played"))


def _used_seed(run: Run, seed: int | None) -> int:
    """Return the seed of the environments: `seed`, or that of the run's final evaluation if it is None."""
    from rlplug_core.runs import evaluation_seed, plan_of

    return evaluation_seed(plan_of(run), seed)


def plain(result: Evaluation) -> dict[str, Any]:
    """Return an evaluation for `--json`."""
    return {
        "episodes": result.episodes,
        "return_mean": result.mean,
        "return_std": result.std,
        "return_sem": result.sem,
        "return_median": result.median,
        "return_iqm": result.iqm,
        "return_min": result.minimum,
        "return_max": result.maximum,
        "length_mean": result.length_mean,
        "success_rate": result.success_rate,
        "cut": result.cut,
        "info": result.info_means,
        "by_agent": result.by_agent,
        "returns": [float(value) for value in result.returns],
        "lengths": list(result.lengths),
    }


def sentence(result: Evaluation, how: str) -> str:
    """Return an evaluation as text; `how` is the kind of episodes, `greedy` or `played`."""
    success = "" if result.success_rate is None else f", success rate {result.success_rate:.1%}"
    agents = "".join(f", {agent} {figures(mean)}" for agent, mean in result.by_agent.items())
    by_agent = f"\nby agent: {agents[2:]}" if agents else ""
    cut_message = f"\n{result.cut_message}" if result.cut else ""
    sem = "-" if result.sem is None else f"{result.sem:,.2f}"
    return (
        f"mean return {figures(result.mean)} ± {figures(result.std)} over {result.episodes} {how} episodes "
        f"(min {figures(result.minimum)}, max {figures(result.maximum)}), mean length {result.length_mean:,.1f}\n"
        f"median {figures(result.median)}, IQM {figures(result.iqm)}, standard error of the mean {sem}"
        f"{success}{by_agent}{cut_message}"
    )


def _curve(results: dict[str, Evaluation]) -> str:
    header = ("CHECKPOINT", "STEP", "MEAN", "SEM", "MEDIAN", "IQM", "MIN", "MAX")
    lines = []
    for name, result in results.items():
        step = f"{int(Path(name).name.rpartition('-')[2]):,}"
        sem = "-" if result.sem is None else figures(result.sem)
        numbers = (result.median, result.iqm, result.minimum, result.maximum)
        lines.append((name, step, figures(result.mean), sem, *map(figures, numbers)))
    return table(header, lines, wrapped=header[:1])

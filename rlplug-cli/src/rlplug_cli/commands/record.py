"""`rlplug record RUN`."""

from __future__ import annotations

from pathlib import Path

import click

from rlplug_cli.arguments import TakesArguments, of_environment
from rlplug_cli.lookup import located, one_thread, shortened
from rlplug_cli.output import echo
from rlplug_cli.trust import given
from rlplug_cli.trust import option as trust_option


@click.command("record", cls=TakesArguments)
@click.argument("run")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The new file, FILE.npz.")
@click.option("--steps", type=click.IntRange(1), default=100_000, help="How many environment steps  [100000]")
@click.option("--num-envs", type=click.IntRange(1), default=1, help="Environments stepped together  [1]")
@click.option("--seed", type=click.IntRange(0), help="The environments' seed  [the run's final evaluation's]")
@click.option("--checkpoint", default="best", metavar="NAME", help="best, final, latest or a name  [best]")
@click.option("--stochastic", is_flag=True, help="Explore as in training at the checkpoint's step.")
@click.option("--epsilon", type=click.FloatRange(0, 1), default=0.0, help="The chance of a random action per step  [0]")
@click.option("--env", help="Record in another environment with the same spaces.")
@click.option("--env.NAME", metavar="VALUE", expose_value=False, help="An argument of the environment.")
@click.option("--wrap", multiple=True, metavar="WRAPPER", help="Wrappers in place of the run's own; none for none.")
@trust_option
def command(
    run: str, output: Path, steps: int, num_envs: int, seed: int | None, checkpoint: str, stochastic: bool,
    epsilon: float, env: str | None, wrap: tuple[str, ...], trust: bool,
) -> None:  # fmt: skip
    """Let a checkpoint of RUN act, and write its transitions as a data set, to be learned from offline."""
    path = located(run)
    one_thread()
    from rlplug_core.runs.opened import Run

    wrappers = None if not wrap else [words for words in wrap if words != "none"]
    arguments = of_environment(click.get_current_context())
    made = Run(path, trust=given(path, trust)).record(
        output, steps, num_envs=num_envs, seed=seed, checkpoint=checkpoint, stochastic=stochastic, epsilon=epsilon,
        env=env, arguments=arguments, wrap=wrappers,
    )  # fmt: skip
    episodes = len(made.returns)
    mean = f", mean return {sum(made.returns) / episodes:,.1f}" if episodes else ""
    echo(f"data set {shortened(output)}: {len(made.dataset):,} transitions, {episodes:,} whole episodes{mean}")
    echo(f"sha256   {made.dataset.sha256}")

"""`rlplug import sb3 MODEL ENV`."""

from __future__ import annotations

from pathlib import Path

import click

from rlplug_cli.notes import short_path
from rlplug_cli.output import echo
from rlplug_cli.shared_options import FILE, FOLDER
from rlplug_cli.threads import one_thread
from rlplug_core.runs import shell_word


@click.command("import")
@click.argument(
    "library",
    type=click.Choice(["sb3"]),
)
@click.argument(
    "model",
    type=FILE,
)
@click.argument(
    "env",
)
@click.option(
    "--out",
    type=FOLDER,
    help="A new folder for the policy  [MODEL without .zip]",
)
@click.option(
    "--normalize",
    type=FILE,
    metavar="FILE",
    help="The file of VecNormalize.save, if the model was trained with it.",
)
def command(
    library: str,
    model: Path,
    env: str,
    out: Path | None,
    normalize: Path | None,
) -> None:
    """Import the policy of a MODEL.zip that Stable-Baselines3 trained on ENV, without executing its pickles.

    It can be an MlpPolicy, CnnPolicy or MultiInputPolicy of PPO, A2C, DQN, SAC, TD3 or DDPG. play, evaluate, push and
    load accept the result.
    """
    one_thread()
    from rlplug_core.runs import import_sb3

    folder = import_sb3(model, env, out or model.with_suffix(""), normalize)
    echo(f"policy   {short_path(folder)}")
    echo(f"play     rlplug play {shell_word(short_path(folder))}")
    echo(f'python   rlplug_core.load("{short_path(folder)}")')

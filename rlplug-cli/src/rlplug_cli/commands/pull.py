"""`rlplug pull SOURCE`."""

from __future__ import annotations

from pathlib import Path

import click

from rlplug_cli.notes import short_path
from rlplug_cli.output import echo
from rlplug_cli.shared_options import FOLDER
from rlplug_cli.threads import one_thread
from rlplug_core.runs import shell_word

#: The source that lists all agents of rlplug-zoo.
ZOO = "zoo:"


@click.command("pull")
@click.argument(
    "source",
)
@click.option(
    "--out",
    type=FOLDER,
    help="A new folder for the files  [the cache]",
)
def command(source: str, out: Path | None) -> None:
    """Get a shared agent and check its files: hub:OWNER/NAME, https://HOST/FOLDER, mlflow:NAME/VERSION, zoo:ALGO/ENV.

    A folder works, too. play, evaluate, compare and --init accept the same sources, and pull those that are not in the
    cache. An agent cannot run code. zoo: lists the agents of rlplug-zoo.
    """
    one_thread()
    from rlplug_core.runs import pull_agent, read_manifest, zoo_agents

    if source == ZOO:
        echo("\n".join(f"{ZOO}{name}" for name in zoo_agents()))
        return
    folder = pull_agent(source, out, refresh=True)
    manifest = read_manifest((folder / "agent.json").read_bytes(), source)
    word = shell_word(source if out is None else short_path(out))
    echo(f"agent    {manifest.algorithm} on {manifest.env}")
    echo(f"folder   {short_path(folder)}")
    echo(f"watch    rlplug play {word}")
    if manifest.reproduce:
        echo(f"again    {manifest.reproduce}")

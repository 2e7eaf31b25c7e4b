"""`rlplug new KIND NAME`: makes a new working plugin."""

from __future__ import annotations

from pathlib import Path
from string import Template

import click

from rlplug_cli import scaffold
from rlplug_cli.output import echo
from rlplug_cli.shared_options import FOLDER
from rlplug_core.runs import shell_word

FORMS = [form for kind in scaffold.KINDS.values() for form in kind.forms]


@click.command("new")
@click.argument(
    "kind",
    type=click.Choice(list(scaffold.KINDS)),
)
@click.argument("name")
@click.option(
    "--out",
    type=FOLDER,
    default=".",
    help="Its parent directory.  [.]",
)
@click.option(
    "--kind",
    "form",
    type=click.Choice(FORMS),
    help="An algorithm that learns from rollouts or from replay; a single environment, or thousands of rows as "
    "tensors.  [rollout, single]",
)
def command(kind: str, name: str, out: Path, form: str | None) -> None:
    """Make a plugin in the directory rlplug-NAME: a complete distribution with code, tests, checks and README.

    It works at once: install it, run it, then change it.
    """
    root, files = scaffold.generate(kind, name, out, form or "")
    id = root.name.removeprefix("rlplug-")
    echo(f"wrote {len(files)} files to {root}; try it:")
    run = Template(scaffold.KINDS[kind].run).substitute(id=id, env=f"{id}/{scaffold.camel(id)}-v0")
    for line in (f"python -m pip install --editable {shell_word(root)}", run):
        echo(f"  {line}")

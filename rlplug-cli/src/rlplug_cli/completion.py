"""The words that a shell may complete: runs, checkpoints, environments, options; nothing heavy is imported for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rlplug_core.plugins.families import families

#: Where runs are unless somebody says otherwise, and the words for a checkpoint by what it is.
OUT = Path("runs")
KINDS = ("best", "final", "latest")


def runs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs by name, those of sweeps under the sweep's; a word that looks like a path is completed as one."""
    if incomplete.startswith((".", "/", "~", f"{OUT}/")):
        return [CompletionItem(incomplete, type="dir")]
    return _beginning(run_names(), incomplete)


def run_names() -> list[str]:
    """The names of all runs, those of sweeps under the sweep's."""
    return _names("config.json")


def runs_and_sweeps(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The same, and whole sweeps."""
    sweeps = [CompletionItem(name) for name in _names("sweep.json") if name.startswith(incomplete)]
    return [*sweeps, *runs(ctx, parameter, incomplete)]


def checkpoints(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The checkpoints of the run that the words before name."""
    named = [
        ctx.params.get("run"),
        *ctx.args,
    ]  # an option without its value leaves the words before it where they are
    places = [path / "checkpoints" for word in named if word for path in (Path(word), OUT / word)]
    kept = (
        sorted(path.name for path in place.iterdir() if path.is_dir())
        for place in places
        if place.is_dir()
    )
    return _beginning([*KINDS, *next(kept, [])], incomplete)


def environments(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Ids of the families that are installed, in any case."""
    ids = {id for family in families() if family.installed for id in family.ids if "*" not in id}
    return [CompletionItem(id) for id in sorted(ids) if id.lower().startswith(incomplete.lower())]


def assignments(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """`NAME=` for every option; the value is typed."""
    return _beginning([f"{name}=" for name in names], incomplete.replace("-", "_"))


def _names(file: str) -> list[str]:
    """The directories in and below `runs` that hold a file, by name."""
    return sorted(
        str(path.parent.relative_to(OUT))
        for depth in ("*", "*/*")
        for path in OUT.glob(f"{depth}/{file}")
    )


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]

"""Words for shell completion: runs, checkpoints, environments, options. It imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rlplug_core.plugins import env_families
from rlplug_core.plugins import ids as plugin_ids

#: The default directory of runs, and the words for a checkpoint that are not names.
OUT = Path("runs")
KINDS = ("best", "final", "latest")
#: The first characters of a word that is a path, not a name.
PATH = (".", "/", "~")


def runs(
    ctx: click.Context,
    parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Complete names of runs, including `SWEEP/RUN`; a word that looks like a path is completed as a path."""
    if incomplete.startswith((*PATH, f"{OUT}/")):
        return [CompletionItem(incomplete, type="dir")]
    return complete_names(run_names(), incomplete)


def run_names() -> list[str]:
    """Return the names of all runs; a run of a sweep is `SWEEP/RUN`."""
    return _names("config.json")


def runs_and_sweeps(
    ctx: click.Context,
    parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Complete names of runs and of whole sweeps."""
    sweeps = [CompletionItem(name) for name in _names("sweep.json") if name.startswith(incomplete)]
    return [*sweeps, *runs(ctx, parameter, incomplete)]


def checkpoints(
    ctx: click.Context,
    parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Complete checkpoints of the run that earlier words name."""
    # If an option lacks its value, `ctx.args` has the words before it.
    words = [ctx.params.get("run"), *ctx.args]
    places = [path / "checkpoints" for word in words if word for path in (Path(word), OUT / word)]
    names: list[str] = []
    folder = next((place for place in places if place.is_dir()), None)
    if folder is not None:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return complete_names([*KINDS, *names], incomplete)


def environments(
    ctx: click.Context,
    parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Complete ids of installed environments, ignoring case, in a list after its last comma; paths as files."""
    ids = {
        id for family in env_families() if family.installed for id in family.ids if "*" not in id
    }
    return _in_list(sorted(ids), incomplete)


def algorithms(
    ctx: click.Context,
    parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Complete ids of algorithms, in a list after its last comma; paths as files."""
    return _in_list(plugin_ids("algorithms"), incomplete)


def algorithms_and_environments(
    ctx: click.Context,
    parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    """Complete ids of algorithms and of environments, and paths as files."""
    if incomplete.startswith(PATH):
        return [CompletionItem(incomplete, type="file")]
    return [
        *algorithms(ctx, parameter, incomplete),
        *environments(ctx, parameter, incomplete),
    ]


def _in_list(ids: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the ids for the last word of a list, ignoring case; a word that is a path is completed as a file."""
    before, comma, word = incomplete.rpartition(",")
    if word.startswith(PATH):
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(f"{before}{comma}{id}") for id in ids if id.lower().startswith(word.lower())
    ]


def assignments(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Complete `NAME=` of every option."""
    return complete_names([f"{name}=" for name in names], incomplete.replace("-", "_"))


def _names(file: str) -> list[str]:
    """Return the directories in `runs` and one level below that contain `file`."""
    return sorted(
        str(path.parent.relative_to(OUT))
        for depth in ("*", "*/*")
        for path in OUT.glob(f"{depth}/{file}")
    )


def complete_names(
    names: Iterable[str],
    incomplete: str,
) -> list[CompletionItem]:
    """Complete names that start with `incomplete`."""
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]

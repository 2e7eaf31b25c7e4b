"""Tell which files that the runs of a comparison name are one, and which were changed between runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlplug_cli.compare.history import History
from rlplug_cli.lookup import file_name
from rlplug_core.plugins.spec import joined, split
from rlplug_core.runs.sources import LISTS

#: What the names of a run's files begin with among its values.
SOURCES = "sources."


class Source(NamedTuple):
    """A file that a run began with: what it was for, its name, that of its content, and where the content lies."""

    role: str
    name: str
    version: str
    place: str


def together(runs: Sequence[History]) -> list[History]:
    """The runs, those of an environment or algorithm whose file was moved under the name that the newest of them has.

    A file is the one of another run if it lies at the same place, or is called the same and holds the same.
    """
    envs = _newest(runs, "env")
    algorithms = _newest(runs, "algorithm")
    return [replace(run, env=envs[run.env], algorithm=algorithms[run.algorithm]) for run in runs]


def _newest(runs: Sequence[History], role: str) -> dict[str, str]:
    """The newest name of each file in a role; of what is no file, its own."""
    above: dict[object, object] = {}

    def top(one: object) -> object:
        while one in above:
            one = above[one]
        return one

    for run in runs:
        place = top(run.config[role])
        content = top(_content(run, role))
        if place != content:
            above[place] = content
    names = [
        str(run.config[role]) for run in sorted(runs, key=lambda run: float(run.config["created"]))
    ]
    newest = {top(name): name for name in names}
    return {name: newest[top(name)] for name in names}


def _content(run: History, role: str) -> object:
    """The name and the hash of a file; for what is no file its name alone."""
    name = str(run.config[role])
    source = run.config.get("sources", {}).get(role)
    return (file_name(name), source["sha256"]) if source else name


def named(run: History) -> dict[str, Any]:
    """A run's options, with the names of files for their places: what they hold says `versions`."""
    options = run.options
    kept = run.config.get("sources", {})
    listed = {
        name: [joined(file_name(target), values) for target, values in map(split, options[name])]
        for name in LISTS
        if options.get(name)
    }
    own = {role: file_name(str(options[role])) for role in kept if role in options}
    data = {"dataset": Path(str(options["dataset"])).name} if run.config.get("dataset") else {}
    return {**options, **listed, **own, **data}


def several(runs: Sequence[History]) -> set[tuple[str, str]]:
    """The files, by role and name, that held different things in different runs."""
    found: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for one in _sources(run):
            found.setdefault((one.role, one.name), set()).add(one.version)
    return {key for key, held in found.items() if len(held) > 1}


def versions(run: History, changed: Collection[tuple[str, str]]) -> dict[str, str]:
    """`sources.ROLE` and the content, as `walk-559aead0.py`, of each of the run's files that was changed."""
    return {
        f"{SOURCES}{one.role}": one.version
        for one in _sources(run)
        if (one.role, one.name) in changed
    }


def _sources(run: History) -> Iterator[Source]:
    """The files that make a run what it is; an environment's and an algorithm's by the place that `together` gave."""
    whole = {"env": run.env, "algorithm": run.algorithm}
    kept = run.config.get("sources", {})
    for role, source in (
        (role, source) for role, source in kept.items() if not role.startswith("log.")
    ):
        file = Path(source["file"])
        version = f"{file.stem}-{source['sha256'][:8]}{file.suffix}"
        yield Source(role, whole.get(role, file.name), version, str(Path(run.path, source["copy"])))
    if data := run.config.get("dataset"):
        file = Path(data["place"])
        yield Source(
            "dataset", file.name, f"{file.stem}-{data['sha256'][:8]}{file.suffix}", str(file)
        )


def changed(arms: Sequence[Sequence[History]]) -> list[str]:
    """Remarks on files that were not the same for all runs: these are apart, or put together in an arm."""
    runs = [run for arm in arms for run in arm]
    said = []
    for key in sorted(several(runs)):
        began = ", ".join(f"{count} began with {place}" for count, place in _counted(runs, key))
        pooled = any(
            key in several([run for run in arm if run.env == env])
            for arm in arms
            for env in _envs(arm)
        )
        how = "put together though" if pooled else "apart, since"
        said.append(f"runs of {file_name(key[1])} are {how} its file was not the same: {began}")
    return said


def _envs(runs: Sequence[History]) -> set[str]:
    return {run.env for run in runs}


def _counted(runs: Sequence[History], key: tuple[str, str]) -> Iterator[tuple[int, str]]:
    """Count the runs that began with each content of a file; with the place where the first of them has it."""
    places: dict[str, list[str]] = {}
    for one in (one for run in runs for one in _sources(run) if (one.role, one.name) == key):
        places.setdefault(one.version, []).append(one.place)
    return ((len(found), found[0]) for found in places.values())

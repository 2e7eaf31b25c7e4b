"""Finds files that several runs of a comparison share, and files that were changed between runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rlplug_cli.compare.history import History
from rlplug_cli.notes import file_name
from rlplug_core.plugins import join_words, split_word
from rlplug_core.runs import LISTS

#: Prefix of a run's files among its values.
SOURCES = "sources."


class Source(NamedTuple):
    """A file of a run: its role, its name, the name of its version, and the path of the run's copy."""

    role: str
    name: str
    version: str
    place: str


def merge_moved_files(runs: Sequence[History]) -> list[History]:
    """Return the runs; if the file of an environment or algorithm was moved, all its runs get the newest name.

    Files of two runs are the same file if they have the same path, or the same name and the same content. An
    environment's file has the name that `rlplug runs` prints, or its path if two files have this name.
    """
    envs = _readable(_newest(runs, "env"))
    algorithms = _newest(runs, "algorithm")
    return [replace(run, env=envs[run.env], algorithm=algorithms[run.algorithm]) for run in runs]


def _newest(runs: Sequence[History], role: str) -> dict[str, str]:
    """Return the newest name of each file in a role; other names stay.

    It joins the paths and the contents of one file in a tree; `parents` has the parent of each.
    """
    parents: dict[object, object] = {}

    def root(key: object) -> object:
        while key in parents:
            key = parents[key]
        return key

    for run in runs:
        place = root(run.config[role])
        content = root(_content(run, role))
        if place != content:
            parents[place] = content
    names = [
        str(run.config[role]) for run in sorted(runs, key=lambda run: float(run.config["created"]))
    ]
    newest = {root(name): name for name in names}
    return {name: newest[root(name)] for name in names}


def _readable(names: Mapping[str, str]) -> dict[str, str]:
    """Return the values without the directories of files, unless two files have the same name."""
    counts = Counter(file_name(name) for name in set(names.values()))
    return {
        old: file_name(name) if counts[file_name(name)] == 1 else name
        for old, name in names.items()
    }


def name_among(names: Collection[str], env: str) -> str:
    """Return the name among `names` of an environment that a user typed, or the word itself if no name fits.

    A file has its name as `rlplug runs` prints it, also if it was typed with a path: `./walk.py:Walk`.
    """
    name = file_name(env)
    return name if env not in names and name in names else env


def _content(run: History, role: str) -> object:
    """Return the name and the hash of a file, or only the name if it is not a file."""
    name = str(run.config[role])
    source = run.config.get("sources", {}).get(role)
    return (file_name(name), source["sha256"]) if source else name


def readable_options(run: History) -> dict[str, Any]:
    """Return a run's options with file names instead of paths; `versions` distinguishes their contents."""
    options = run.options
    sources = run.config.get("sources", {})
    list_options = {}
    for name in LISTS:
        if options.get(name):
            words = map(split_word, options[name])
            list_options[name] = [join_words(file_name(target), values) for target, values in words]
    file_options = {role: file_name(str(options[role])) for role in sources if role in options}
    data = {"dataset": Path(str(options["dataset"])).name} if run.config.get("dataset") else {}
    return {**options, **list_options, **file_options, **data}


def files_that_differ(runs: Sequence[History]) -> set[tuple[str, str]]:
    """Return the files, by role and name, with different contents in different runs."""
    by_file: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        for source in _sources(run):
            by_file.setdefault((source.role, source.name), set()).add(source.version)
    return {key for key, contents in by_file.items() if len(contents) > 1}


def versions(
    run: History,
    changed: Collection[tuple[str, str]],
) -> dict[str, str]:
    """Return the version, such as `walk-559aead0.py`, of each changed file of a run by `sources.ROLE`."""
    return {
        f"{SOURCES}{source.role}": source.version
        for source in _sources(run)
        if (source.role, source.name) in changed
    }


def _sources(run: History) -> Iterator[Source]:
    """Yield the files of a run; environment and algorithm have the names that `merge_moved_files` gave."""
    merged = {"env": run.env, "algorithm": run.algorithm}
    sources = run.config.get("sources", {})
    for role, source in sources.items():
        if not role.startswith("log."):
            file = Path(source["file"])
            place = str(Path(run.path, source["copy"]))
            yield Source(role, merged.get(role, file.name), _version(file, source["sha256"]), place)
    if data := run.config.get("dataset"):
        file = Path(data["place"])
        yield Source("dataset", file.name, _version(file, data["sha256"]), str(file))


def _version(file: Path, sha256: str) -> str:
    return f"{file.stem}-{sha256[:8]}{file.suffix}"


def file_remarks(arms: Sequence[Sequence[History]]) -> list[str]:
    """Return remarks about files that changed between runs: their runs are separate lines, or combined in one."""
    runs = [run for arm in arms for run in arm]
    remarks = []
    for key in sorted(files_that_differ(runs)):
        counts = ", ".join(f"{count} with {path}" for count, path in _count_versions(runs, key))
        groups = (
            [run for run in arm if run.env == env]
            for arm in arms
            for env in {run.env for run in arm}
        )
        pooled = any(key in files_that_differ(group) for group in groups)
        how = "combined although" if pooled else "separate because"
        remarks.append(f"runs of {file_name(key[1])} are {how} its file changed: {counts}")
    return remarks


def _count_versions(
    runs: Sequence[History],
    key: tuple[str, str],
) -> Iterator[tuple[int, str]]:
    """Return the number of runs with each version of a file, and the path in the first of these runs."""
    places: dict[str, list[str]] = {}
    for run in runs:
        for source in _sources(run):
            if (source.role, source.name) == key:
                places.setdefault(source.version, []).append(source.place)
    return ((len(paths), paths[0]) for paths in places.values())

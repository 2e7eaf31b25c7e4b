"""Tell which files that the runs of a comparison name are one, and which were changed between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlplug_cli.compare.history import History
from rlplug_cli.lookup import file_name


def together(runs: Sequence[History]) -> list[History]:
    """The runs, those of an environment whose file was moved under the name that the newest of them has.

    A file is the one of another run if it lies at the same place, or is called the same and holds the same.
    """
    above: dict[object, object] = {}

    def top(one: object) -> object:
        while one in above:
            one = above[one]
        return one

    for run in runs:
        place, content = top(run.env), top(_content(run))
        if place != content:
            above[place] = content
    newest = {top(run.env): run.env for run in sorted(runs, key=lambda run: float(run.config["created"]))}
    return [replace(run, env=newest[top(run.env)]) for run in runs]


def changed(runs: Sequence[History]) -> list[str]:
    """Remarks on environments and algorithms whose file was not the same for all runs that are put together."""
    copies: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in runs:
        for role, name in (("env", run.env), ("algorithm", file_name(run.config["algorithm"]))):
            if source := run.config.get("sources", {}).get(role):
                copies.setdefault((role, name), {}).setdefault(source["copy"], []).append(str(run.path))
    return [
        f"runs of {file_name(name)} are put together though its file was changed between them: "
        + ", ".join(f"{len(paths)} began with {Path(paths[0], copy)}" for copy, paths in found.items())
        for (_, name), found in copies.items()
        if len(found) > 1
    ]


def _content(run: History) -> object:
    """The name and the hash of the environment's file; for what is no file its name alone."""
    source = run.config.get("sources", {}).get("env")
    return (file_name(run.env), source["sha256"]) if source else run.env

"""The installed distributions that contribute to rlplug, read from their files in one pass over the path.

`importlib.metadata` finds the same ones, but parses the metadata of a distribution with a mail parser for each query
of its name: with many plugins that is most of the time of `rlplug list`. Here a distribution without a contribution
costs one check for `entry_points.txt`. Path entries that are not directories are left to the library.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

from rlplug_core.plugins.records import canonical

if TYPE_CHECKING:
    from importlib.metadata import Distribution

MARK = "[rlplug."
#: Directories of metadata.
KINDS = (".dist-info", ".egg-info")


@dataclass(frozen=True)
class Installed:
    """One distribution: its metadata, and the text of its `entry_points.txt`."""

    name: str
    version: str
    summary: str
    requires: tuple[str, ...]
    points: str

    def contributions(self) -> Iterator[tuple[str, str, str]]:
        """Yield group, name and target of each entry point.

        Raises:
            ValueError: a line is neither a section nor `name = target`.
        """
        group = ""
        for line in map(str.strip, self.points.splitlines()):
            if line.startswith("[") and line.endswith("]"):
                group = line[1:-1].strip()
            elif line and not line.startswith(("#", ";")):
                name, equals, target = line.partition("=")
                if not equals:
                    raise ValueError(f"'{line}' is not an entry point")
                yield group, name.strip(), target.partition("[")[0].strip()


def contributing() -> Iterator[Installed]:
    """Yield distributions with entry points for rlplug; of several copies the first on the path, as for imports."""
    seen: set[str] = set()
    for directory in sys.path:
        for name, path in _metadata_in(directory or "."):
            if name not in seen:
                seen.add(name)
                points = _text(f"{path}/entry_points.txt")
                if MARK in points and (parsed := _parse(_headers(path), points)):
                    yield parsed
    for distribution in _distributions_in_archives():
        points = _read_text(distribution, "entry_points.txt")
        parsed = _parse(_read_text(distribution, "METADATA"), points) if MARK in points else None
        if parsed and parsed.name not in seen:
            seen.add(parsed.name)
            yield parsed


def _metadata_in(directory: str) -> Iterator[tuple[str, str]]:
    """Yield the metadata directories in a directory of the path, each with its distribution's name."""
    try:
        entries = sorted(os.listdir(directory))
    except OSError:  # missing, unreadable, or not a directory
        return
    for entry in entries:
        if entry.endswith(KINDS):
            yield (
                canonical(entry.rpartition(".")[0].partition("-")[0]),
                os.path.join(directory, entry),
            )


def _headers(path: str) -> str:
    """Return the text of a directory's metadata; an `.egg-info` has its requirements in a separate file."""
    if path.endswith(".dist-info"):
        return _text(f"{path}/METADATA")
    required = _text(f"{path}/requires.txt").partition("[")[0].split("\n")
    return "\n".join(
        [*(f"Requires-Dist: {line}" for line in required if line), _text(f"{path}/PKG-INFO")]
    )


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    # A file that is unreadable or not UTF-8 must not hide the other distributions.
    except (OSError, ValueError):
        return ""


def _read_text(distribution: Distribution, name: str) -> str:
    try:
        return distribution.read_text(name) or ""
    # As in `_text`: some finders raise an error, others return nothing.
    except (OSError, ValueError):
        return ""


def _parse(metadata: str, points: str) -> Installed | None:
    """Return a distribution from the text of its metadata; None without a name, as after an interrupted removal."""
    headers: dict[str, list[str]] = {}
    for line in metadata.splitlines():
        if not line:
            break
        name, colon, value = line.partition(":")
        # A continued line belongs to a field that is not needed.
        if colon and not line[0].isspace():
            headers.setdefault(name.lower(), []).append(value.strip())
    if not headers.get("name"):
        return None
    name, version, summary = (headers.get(key, [""])[0] for key in ("name", "version", "summary"))
    return Installed(
        canonical(name), version, summary, tuple(headers.get("requires-dist", ())), points
    )


def _distributions_in_archives() -> Iterator[Distribution]:
    """Yield distributions in archives on the path, and those of unusual finders."""
    archives = [entry for entry in sys.path if os.path.isfile(entry)]
    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    searches = [find for finder in finders if (find := getattr(finder, "find_distributions", None))]
    if not archives and not searches:
        return
    from importlib.metadata import DistributionFinder, distributions

    if archives:
        yield from distributions(path=archives)
    for find in searches:
        yield from find(DistributionFinder.Context())

"""Writes small real distributions (a package and its installed metadata) into a directory, for tests of plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def write_distribution(
    root: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str],
    version: str = "1.0",
    requires: Iterable[str] = (),
    summary: str = "A plugin for tests",
) -> Path:
    """Write the files of an installed distribution into `root`, a directory on the path.

    Args:
        entry_points: targets by group (such as `rlplug.algorithms`) and name.
        files: file contents by path relative to `root`.

    Returns:
        The `.dist-info` directory.
    """
    info = root / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    required = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.3\nName: {name}\nVersion: {version}\nSummary: {summary}\n{required}",
        encoding="utf-8",
    )
    sections = []
    for group, points in entry_points.items():
        lines = "".join(f"{key} = {target}\n" for key, target in points.items())
        sections.append(f"[{group}]\n{lines}")
    (info / "entry_points.txt").write_text("\n".join(sections), encoding="utf-8")
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return info

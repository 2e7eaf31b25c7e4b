"""An environment in which only some installed distributions, and what they declare to need, can be imported.

`nox` fills one environment with every extra and tool. An import that a package does not declare works there, and fails
in an environment of this kind: its folder of packages has links to the files of the declared distributions only.
"""

from __future__ import annotations

import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PACKAGES = ("rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli")
#: The command `rlplug` of an environment, wherever that is.
SCRIPT = '#!/bin/sh\nexec "$(dirname "$0")/python" -m rlplug_cli "$@"\n'


def make(root: Path, *tools: str) -> None:
    """Make a virtual environment in `root` with the four packages, `tools` and what they declare to need."""
    venv.create(root / "environment", with_pip=False, symlinks=True)
    script = root / "environment" / "bin" / "rlplug"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    linked = root / "linked"
    linked.mkdir()
    for name in closure(*PACKAGES, *tools):
        for entry in top_entries(metadata.distribution(name)):
            if not (linked / entry.name).exists():
                (linked / entry.name).symlink_to(entry)
    (site,) = (root / "environment").glob("lib/python*/site-packages")
    (site / "linked.pth").write_text(f"{linked}\n", encoding="utf-8")


def closure(*names: str) -> set[str]:
    """Return the names of distributions and of everything that installing them brings."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower().replace("_", "-")
        for extra in {"", *requirement.extras}:
            if (name, extra) not in found:
                found.add((name, extra))
                waiting += required(name, extra)
    return {name for name, _ in found}


def required(name: str, extra: str = "") -> Iterator[Requirement]:
    """Yield what a distribution requires, or what one of its extras does."""
    for requirement in map(Requirement, metadata.requires(name) or []):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def top_entries(distribution: metadata.Distribution) -> set[Path]:
    """Return the packages, modules and metadata of an installed distribution; scripts are left out."""
    tops = {file.parts[0] for file in distribution.files or []}
    return {Path(str(distribution.locate_file(top))) for top in tops if top not in ("..", "__pycache__")}

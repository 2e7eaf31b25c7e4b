"""Final returns of presets: `presets/results.json` in a package, rows of its learning tables; imports no plugin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlplug_core.config.files import as_type, from_json
from rlplug_core.errors import BadFile, warn
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.index import package_root

FILE = "results.json"


@dataclass(frozen=True)
class PresetResult:
    """The final return that an algorithm reached with its preset.

    Attributes:
        seeds: the number of seeds; `of` says how `result` combines them, such as `worst seed`.
        result: of the best checkpoints on new seeds; `last` is that of the last weights, if it was recorded.
    """

    algorithm: str
    env: str
    steps: int
    seeds: int
    result: float
    of: str
    last: float | None = None

    def __str__(self) -> str:
        """Return the result as one line: `CartPole-v1: 500 after 100,000 env steps (worst seed of 5)`."""
        how = "one seed" if self.seeds == 1 else f"{self.of} of {self.seeds}"
        return f"{self.env}: {self.result:g} after {self.steps:,} env steps ({how})"


def preset_results(env: str) -> list[PresetResult]:
    """Return the results of all usable algorithms in an environment, as far as their packages have them."""
    return [one for one in all_results() if one.env == env]


def all_results() -> list[PresetResult]:
    """Return the results of all usable algorithms, as far as their packages have them."""
    usable = [one for one in records() if one.group == "algorithms" and one.status == "ok"]
    ids = {one.id for one in usable}
    found = []
    for package in sorted({one.top_level for one in usable}):
        root = package_root(package)
        path = None if root is None else root / "presets" / FILE
        if path is not None and path.is_file():
            found += [one for one in _read(path) if one.algorithm in ids]
    return found


def _read(path: Path) -> list[PresetResult]:
    """Return the rows of a file; warn about a damaged file and return no rows."""
    try:
        return as_type(from_json(path, follow=True), list[PresetResult], path)
    except BadFile as error:
        warn(str(error))
        return []

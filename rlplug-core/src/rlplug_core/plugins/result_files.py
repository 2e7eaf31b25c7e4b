"""Results in packages as JSON files: returns that presets reached, and those of `rlplug check`; imports no plugin."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import rlplug_core
from rlplug_core.config.files import as_type, from_json, replace
from rlplug_core.errors import BadFile, warn
from rlplug_core.plugins import index
from rlplug_core.plugins.discovery import usable_records
from rlplug_core.plugins.index import package_root
from rlplug_core.plugins.records import Record

T = TypeVar("T")
#: The paths in a package.
PRESETS = "presets/results.json"
CHECKS = "checks.json"


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


@dataclass(frozen=True)
class CheckResult:
    """Result of `rlplug check` for a version of a plugin with a version of rlplug-core.

    Attributes:
        group, id: the plugin's group of entry points without `rlplug.`, and its name there.
        version, core, python: the versions of its distribution, of rlplug-core and of Python.
        contract: the contract that the checks followed.
        date: the day in UTC, such as `2026-11-29`.
        command: the command line of the check.
        counts: the number of checks by outcome, such as `{"passed": 31, "skipped": 14}`.
        failed: the names of the failed checks.
        sources: the SHA-256 of the plugin's sources; "" in results of released versions.
    """

    group: str
    id: str
    version: str
    core: str
    python: str
    contract: int
    date: str
    command: str
    counts: dict[str, int] = field(hash=False)
    failed: tuple[str, ...] = ()
    sources: str = ""

    def __str__(self) -> str:
        """Return the result as one line: `passed 2026-11-29`, or `failed 2026-11-29: resume, export`."""
        return (
            f"failed {self.date}: {', '.join(self.failed)}"
            if self.failed
            else f"passed {self.date}"
        )


def preset_results(env: str) -> list[PresetResult]:
    """Return the results of all usable algorithms in an environment, as far as their packages have them."""
    return [result for result in all_results() if result.env == env]


def all_results() -> list[PresetResult]:
    """Return the results of all usable algorithms, as far as their packages have them."""
    usable = usable_records("algorithms")
    ids = {record.id for record in usable}
    return [
        result for result in _rows(usable, PRESETS, list[PresetResult]) if result.algorithm in ids
    ]


def check_results(plugins: Iterable[Record]) -> dict[Record, tuple[CheckResult, ...]]:
    """Return the recorded checks of plugins; results of other sources than the installed ones are left out."""
    plugins = tuple(plugins)
    rows = _rows(plugins, CHECKS, list[CheckResult])
    checks = {}
    for record in plugins:
        description, _ = index.read(record)
        key = (record.group, record.id, _source_hash(description) if description else "")
        checks[record] = tuple(row for row in rows if (row.group, row.id, row.sources) == key)
    return checks


def record_check(
    record: Record,
    command: str,
    outcomes: Mapping[str, str],
) -> Path:
    """Write the outcomes of the checks of a plugin, by name, into the file `checks.json` of its package.

    The result replaces the one with this rlplug-core, and those of other sources of the plugin.

    Raises:
        PluginError: the plugin has no valid index, so there is no list of its sources.
    """
    description = index.required(record)
    path = Path(str(package_root(record.top_level)), CHECKS)
    statuses = list(outcomes.values())
    new = CheckResult(
        group=record.group,
        id=record.id,
        version=record.version,
        core=rlplug_core.__version__,
        python=platform.python_version(),
        contract=description.contract,
        date=datetime.now(UTC).date().isoformat(),
        command=command,
        counts={status: statuses.count(status) for status in sorted(set(statuses))},
        failed=tuple(name for name, status in outcomes.items() if status == "failed"),
        sources=_source_hash(description),
    )
    old = [row for row in _rows([record], CHECKS, list[CheckResult]) if not _is_replaced(row, new)]
    rows = sorted([*old, new], key=lambda row: (row.group, row.id, row.core))
    text = json.dumps([dataclasses.asdict(row) for row in rows], indent=1, ensure_ascii=False)
    replace(path, f"{text}\n".encode())
    return path


def _is_replaced(row: CheckResult, new: CheckResult) -> bool:
    """Return whether `new` is a result of the same plugin, for other sources or with the same rlplug-core."""
    same_plugin = (row.group, row.id) == (new.group, new.id)
    return same_plugin and (row.sources != new.sources or row.core == new.core)


def _source_hash(description: index.Index) -> str:
    """Return one SHA-256 for all modules of an index."""
    return hashlib.sha256(json.dumps(description.modules, sort_keys=True).encode()).hexdigest()


def _rows(
    plugins: Iterable[Record],
    name: str,
    kind: type[list[T]],
) -> list[T]:
    """Return the rows of a file in the packages of plugins; warn about a damaged file and leave it out."""
    rows: list[T] = []
    for package in sorted({record.top_level for record in plugins}):
        root = package_root(package)
        path = None if root is None else root / name
        if path is None or not path.is_file():
            continue
        try:
            rows += as_type(from_json(path, follow=True), kind, path)
        except BadFile as error:
            warn(str(error))
    return rows

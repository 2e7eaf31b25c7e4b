"""The records of discovery, one for each algorithm, provider, wrapper or set of hooks of a plugin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rlplug_core.errors import plain

Group: TypeAlias = Literal[
    "algorithms",
    "envs",
    "wrappers",
    "controllers",
    "memories",
    "networks",
    "populations",
    "hooks",
    "loggers",
]
Status: TypeAlias = Literal["ok", "disabled", "incompatible", "broken", "shadowed"]

#: The noun for one contribution of each group in messages, in the order of lists.
NOUNS: dict[Group, str] = {
    "algorithms": "algorithm",
    "envs": "environment provider",
    "wrappers": "wrapper",
    "controllers": "controller",
    "memories": "memory",
    "networks": "network",
    "populations": "population rule",
    "hooks": "hook plugin",
    "loggers": "logger",
}
GROUPS: tuple[Group, ...] = tuple(NOUNS)
#: The groups with entry points that may name a module; front ends list them by name only.
MODULES: tuple[Group, ...] = ("hooks", "loggers")
#: The distributions with reserved ids.
FIRST_PARTY = frozenset({"rlplug-core", "rlplug-algos", "rlplug-envs", "rlplug-cli"})

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


@dataclass(frozen=True)
class Record:
    """One entry point, found without importing anything.

    `id` is the entry point's name, `target` its `module:attribute`; `reason` says why `status` is not `ok`.
    """

    group: Group
    id: str
    target: str
    distribution: str
    version: str
    summary: str = ""
    status: Status = "ok"
    reason: str = ""

    @property
    def full_name(self) -> str:
        """Return `distribution/id`, which names this contribution regardless of other installed packages."""
        return f"{self.distribution}/{self.id}"

    @property
    def first_party(self) -> bool:
        return self.distribution in FIRST_PARTY

    @property
    def top_level(self) -> str:
        """Return the package with the target, the index and the presets."""
        return self.target.partition(":")[0].partition(".")[0]

    def __str__(self) -> str:
        return f"{NOUNS[self.group]} '{self.id}' of {self.distribution} {self.version}"


def canonical(name: str) -> str:
    """Return a distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def format_fault(group: Group, id: str, target: str) -> str:
    """Return why an entry point cannot be used at all, or an empty string."""
    if not _ID.fullmatch(id):
        return f"the name {plain(id)!r} is not made of letters, digits, '-', '_' and '.'"
    if not _TARGET.fullmatch(target):
        return f"the target {plain(target)!r} is not of the form module:name"
    if group not in MODULES and ":" not in target:
        return f"the target '{target}' names a module; {NOUNS[group]}s need module:name"
    return ""

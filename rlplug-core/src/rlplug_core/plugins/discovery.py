"""Finds every plugin in one scan of the installed metadata: imports none, never raises, never drops one."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from rlplug_core.plugins import index
from rlplug_core.plugins.known import KNOWN
from rlplug_core.plugins.policy import Policy
from rlplug_core.plugins.records import FIRST_PARTY, GROUPS, Group, Record, Status, canonical, malformed, plain

_MARK = "[rlplug."


@cache
def records() -> tuple[Record, ...]:
    """All contributions of all installed plugins: first-party ones first, then by name. Scanned once per process."""
    return scan(Policy.read(os.environ))


def refresh() -> None:
    """Forget the last scan and the indices it led to; a notebook calls this after an installation."""
    importlib.invalidate_caches()
    records.cache_clear()
    index.read.cache_clear()
    index.package_root.cache_clear()


def scan(policy: Policy) -> tuple[Record, ...]:
    """One scan of the path, judged by a policy."""
    found = [record for distribution in _distributions() for record in _records(distribution, policy)]
    found.sort(key=lambda record: (not record.first_party, record.distribution, record.group, record.id))
    return tuple(_shadow(found))


def _distributions() -> Iterator[metadata.Distribution]:
    """The distributions that contribute; of several copies the first on the path, as the import system does."""
    names: set[str] = set()
    for distribution in metadata.distributions():
        if _MARK in _entry_points_text(distribution):
            names.add(_name(distribution))
    for name in sorted(names):
        try:
            first = metadata.distribution(name)
        except (metadata.PackageNotFoundError, ValueError):
            continue  # metadata without a usable name is nobody's plugin
        if _MARK in _entry_points_text(first):
            yield first


def _entry_points_text(distribution: metadata.Distribution) -> str:
    try:
        return distribution.read_text("entry_points.txt") or ""
    except (OSError, ValueError):  # unreadable or not UTF-8: whoever owns it, it must not stop the others
        return ""


def _name(distribution: metadata.Distribution) -> str:
    try:
        return canonical(distribution.metadata["Name"] or "")
    except (OSError, ValueError, KeyError, TypeError):  # half-removed distributions have no METADATA
        return ""


def _summary(distribution: metadata.Distribution) -> str:
    # The typed interface of metadata has no get().
    return distribution.metadata["Summary"] if "Summary" in distribution.metadata else ""  # noqa: SIM401


def _records(distribution: metadata.Distribution, policy: Policy) -> list[Record]:
    name = _name(distribution)
    version = plain(distribution.version or "?", 40)
    try:
        summary = plain(_summary(distribution), 100)
        points = list(_points(distribution))
        unmet = _unmet(distribution)
    except Exception as error:  # noqa: BLE001 - importlib.metadata raises anything on a malformed file
        reason = f"its metadata cannot be parsed ({plain(str(error))})"
        return [Record("algorithms", name, "", name, version, "", "broken", reason)]
    about = (name, version, summary)
    return [_judge(Record(group, plain(id, 60), target, *about), policy, unmet) for group, id, target in points]


def _points(distribution: metadata.Distribution) -> Iterator[tuple[Group, str, str]]:
    for group in GROUPS:
        for point in distribution.entry_points.select(group=f"rlplug.{group}"):
            yield group, point.name, point.value.partition("[")[0].strip()


def _judge(record: Record, policy: Policy, unmet: str) -> Record:
    """The record with its status; what the user switched off is not examined further."""
    if reason := policy.reason(record.distribution, record.id):
        return _with(record, "disabled", reason)
    if unmet:
        return _with(record, "incompatible", unmet)
    if reason := malformed(record.group, record.id, record.target) or _absent(record.top_level):
        return _with(record, "broken", reason)
    return record


def _with(record: Record, status: Status, reason: str) -> Record:
    return dataclasses.replace(record, status=status, reason=reason)


def _absent(package: str) -> str:
    """Why a top-level package cannot be found, or an empty string; finding a top-level one executes nothing."""
    try:
        return "" if find_spec(package) else f"its package '{package}' is not installed"
    except (ImportError, ValueError, AttributeError) as error:
        return f"its package '{package}' cannot be found ({plain(str(error))})"


def _unmet(distribution: metadata.Distribution) -> str:
    """Why the distribution's own requirement on rlplug-core is not met, or an empty string."""
    wanted = [line for line in distribution.requires or () if canonical(line).startswith("rlplug-core")]
    if not wanted:
        return ""
    from packaging.requirements import InvalidRequirement, Requirement

    here = core_version()
    for line in wanted:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            return f"its requirement {plain(line)!r} cannot be read ({plain(str(error))})"
        if canonical(requirement.name) != "rlplug-core" or not here:
            continue
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(here, prereleases=True):
            return f"it needs rlplug-core{requirement.specifier}, installed is {here}"
    return ""


@cache
def core_version() -> str:
    """The installed version of rlplug-core, empty where it runs without metadata."""
    try:
        return metadata.version("rlplug-core")
    except metadata.PackageNotFoundError:
        return ""


def _shadow(found: Iterable[Record]) -> Iterator[Record]:
    """First-party ids are reserved: another distribution's contribution of that id keeps only its full name."""
    owners: dict[tuple[Group, str], str] = defaultdict(str)
    for group, names in KNOWN.items():
        owners.update({(group, id): owner for id, owner in names.items() if owner in FIRST_PARTY})
    for record in found:
        key = (record.group, record.id)
        if record.first_party:
            owners[key] = record.distribution
        if owners[key] and not record.first_party and record.status == "ok":
            yield _with(record, "shadowed", f"the id '{record.id}' belongs to {owners[key]}; use '{record.full_name}'")
        else:
            yield record

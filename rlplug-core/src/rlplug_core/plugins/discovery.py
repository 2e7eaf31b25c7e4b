"""Finds every plugin in one scan of the installed metadata; imports none. A broken one gets a reason, not an error."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec

import rlplug_core
from rlplug_core.errors import did_you_mean, plain
from rlplug_core.plugins import index
from rlplug_core.plugins.installed import Installed, contributing
from rlplug_core.plugins.known import KNOWN
from rlplug_core.plugins.records import (
    FIRST_PARTY,
    GROUPS,
    Group,
    Record,
    Status,
    canonical,
    format_fault,
)
from rlplug_core.plugins.switches import Switches

#: The group of the entry point that names the version of the contract that a distribution is written for.
DECLARED = "rlplug.contract"
_NUMBER = re.compile(r"[0-9]{1,6}")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_BOUND = rf"(?:>=|<)\s*{_RELEASE.pattern}\s*"
#: A requirement of an extra; the plugin itself can run without it.
_OF_AN_EXTRA = re.compile(r";\s*extra == ['\"][^'\"]+['\"]\s*$")
#: The usual requirement, with or without extras, which is read without the package `packaging`.
_USUAL = re.compile(
    rf"rlplug[-_.]core(?:\[[\w,-]*\])?\s*({_BOUND}(?:,\s*{_BOUND})*)", re.IGNORECASE
)


@cache
def records() -> tuple[Record, ...]:
    """Return all contributions of installed plugins: first-party ones first, then by name; scanned once per process."""
    return scan(Switches.read(os.environ))


def usable_records(group: Group) -> list[Record]:
    """Return the contributions of a group that can be used by their ids."""
    return [record for record in records() if record.group == group and record.status == "ok"]


def refresh() -> None:
    """Forget the last scan and the indices that were read; a notebook calls this after an installation."""
    importlib.invalidate_caches()
    records.cache_clear()
    index.read.cache_clear()
    index.package_root.cache_clear()


def scan(switches: Switches) -> tuple[Record, ...]:
    """Scan the installed distributions; switches of the user disable some contributions."""
    contributions = [
        record for distribution in contributing() for record in _records(distribution, switches)
    ]
    contributions.sort(
        key=lambda record: (not record.first_party, record.distribution, record.group, record.id)
    )
    return tuple(_reserve_ids(contributions))


def _records(distribution: Installed, switches: Switches) -> list[Record]:
    origin = (
        distribution.name,
        plain(distribution.version or "?", 40),
        index.about(distribution.summary),
    )
    try:
        points = list(distribution.contributions())
    except ValueError as error:
        reason = f"its metadata cannot be parsed ({plain(str(error))})"
        return [
            Record("algorithms", distribution.name, "", *origin[:2], status="broken", reason=reason)
        ]
    unmet = _unmet_requirement(distribution) or _unsupported_contract(points)
    checked = [
        _check_status(Record(group, plain(id, 60), target, *origin), switches, unmet)
        for group in GROUPS
        for section, id, target in points
        if section == f"rlplug.{group}"
    ]
    return checked + [
        Record("algorithms", plain(id, 60), target, *origin, status="broken", reason=reason)
        for section, id, target in points
        if (reason := _unknown_group(section))
    ]


def _unknown_group(section: str) -> str:
    """Return why rlplug does not read a group of entry points, such as a misspelt one; "" for others."""
    name = section.removeprefix("rlplug.")
    if name == section or section == DECLARED or name in GROUPS:
        return ""
    groups = ", ".join(f"rlplug.{group}" for group in GROUPS)
    hint = did_you_mean(name, GROUPS) or f"; the groups are {groups}"
    return f"there is no entry point group '{plain(section, 60)}'{hint}"


def _check_status(record: Record, switches: Switches, unmet: str) -> Record:
    """Return the record with its status; plugins that the user switched off are not examined further."""
    if reason := switches.reason(record.distribution, record.id):
        return _set_status(record, "disabled", reason)
    if unmet:
        return _set_status(record, "incompatible", unmet)
    reason = format_fault(record.group, record.id, record.target)
    reason = reason or _missing_package(record.top_level)
    if reason:
        return _set_status(record, "broken", reason)
    return record


def _set_status(record: Record, status: Status, reason: str) -> Record:
    return dataclasses.replace(record, status=status, reason=reason)


def _missing_package(package: str) -> str:
    """Return why a top-level package cannot be found, or an empty string; this executes no code of it."""
    try:
        return "" if find_spec(package) else f"its package '{package}' is not installed"
    except (ImportError, ValueError, AttributeError) as error:
        return f"its package '{package}' cannot be found ({plain(str(error))})"


def _unmet_requirement(distribution: Installed) -> str:
    """Return why the distribution's requirement on rlplug-core is not met, or an empty string."""
    mentions = (line for line in distribution.requires if canonical(line).startswith("rlplug-core"))
    requirements = [line for line in mentions if not _OF_AN_EXTRA.search(line)]
    if all(_is_surely_met(line) for line in requirements):
        return ""
    # This import takes 15 ms, and few plugins need it.
    from packaging.requirements import InvalidRequirement, Requirement

    for line in requirements:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            return f"its requirement {plain(line)!r} cannot be read ({plain(str(error))})"
        if canonical(requirement.name) != "rlplug-core":
            continue
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(
            rlplug_core.__version__, prereleases=True
        ):
            return f"it needs rlplug-core{requirement.specifier}, installed is {rlplug_core.__version__}"
    return ""


def _unsupported_contract(points: Iterable[tuple[str, str, str]]) -> str:
    """Return why the contract that a distribution declares is not supported, or an empty string.

    It declares the number as the name of an entry point of the group `rlplug.contract`. Without such an entry point,
    its contract counts as supported.
    """
    installed = f"rlplug-core {rlplug_core.__version__} has {index.CONTRACT}"
    for section, name, _ in points:
        if section != DECLARED:
            continue
        if not _NUMBER.fullmatch(name):
            return f"its contract {plain(repr(name), 40)} is not a number, and {installed}"
        if int(name) > index.CONTRACT:
            return f"it is written for contract {name} of plugins, and {installed}"
        if int(name) < index.OLDEST_CONTRACT:
            oldest = index.OLDEST_CONTRACT
            return f"it is written for contract {name}, and {installed} and supports {oldest} and later"
    return ""


def _is_surely_met(line: str) -> bool:
    """Return True if a requirement has the usual form, `rlplug-core>=1.2,<2`, and is met; False means unknown."""
    bounds = _USUAL.fullmatch(line)
    if bounds is None or not _RELEASE.fullmatch(rlplug_core.__version__):
        return False
    installed = _order(rlplug_core.__version__)
    limits = [
        (bound.strip()[:1], _order(bound.strip().lstrip("<>="))) for bound in bounds[1].split(",")
    ]
    return all(installed >= limit if sign == ">" else installed < limit for sign, limit in limits)


def _order(version: str) -> list[int]:
    """Return numbers to compare: 1.0 is 1, so zeros at the end do not count."""
    return [int(number) for number in re.sub(r"(\.0+)+$", "", version.strip()).split(".")]


def _reserve_ids(contributions: Iterable[Record]) -> Iterator[Record]:
    """Reserve first-party ids: a contribution of another distribution with such an id keeps only its full name."""
    owners: dict[tuple[Group, str], str] = defaultdict(str)
    for group, names in KNOWN.items():
        owners.update({(group, id): owner for id, owner in names.items() if owner in FIRST_PARTY})
    for record in contributions:
        key = (record.group, record.id)
        if record.first_party:
            owners[key] = record.distribution
        if owners[key] and not record.first_party and record.status == "ok":
            yield _set_status(
                record,
                "shadowed",
                f"the id '{record.id}' belongs to {owners[key]}; use '{record.full_name}'",
            )
        else:
            yield record

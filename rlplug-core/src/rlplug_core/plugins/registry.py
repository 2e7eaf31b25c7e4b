"""The registry: which distributions offer which plugins, installed or not. It is read and never executed.

A registry is one JSON file; `rlplug index PLUGIN… --registry FILE` writes the entries of installed distributions.
The variable `RLPLUG_REGISTRY`, or `registry` in the table `plugins` of the configuration file, names it: its path, a
folder of such files, or an address. An address is read once, and then from the cache, also offline. If it ends with
`#sha256=…`, other contents are refused. If nothing names a registry, the one in this package is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from rlplug_core.config.download import download
from rlplug_core.config.files import as_type, from_json, replace
from rlplug_core.errors import BadFile, UsageError, plain
from rlplug_core.plugins import index
from rlplug_core.plugins.records import GROUPS, Record
from rlplug_core.plugins.result_files import CheckResult, all_results, check_results
from rlplug_core.plugins.switches import config_path, plugins_table

FORMAT = 1
#: The variable that names the registry.
VARIABLE = "RLPLUG_REGISTRY"
#: The registry of rlplug's packages and example plugins; `nox -s compat` writes it.
OWN = Path(__file__).with_name("registry.json")
#: The most bytes of a registry at an address.
MOST_BYTES = 2**24
#: A name of a distribution or a plugin; anything else could be an option of pip, or worse.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True)
class Offer:
    """A plugin that a distribution offers.

    Attributes:
        group, id: its group of entry points without `rlplug.`, and its name there.
        distribution, version: what pip installs.
        contract: the contract that it was indexed for; 0 if unknown.
        learned: the returns that its presets reached, one sentence for each environment.
        checks: the results of `rlplug check`, one for each of its versions and each rlplug-core.
    """

    group: str
    id: str
    distribution: str
    version: str = ""
    summary: str = ""
    paper: str = ""
    aliases: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    contract: int = 0
    learned: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()

    def matches(self, words: Iterable[str]) -> bool:
        """Return whether each word is in its names, summary or paper; upper and lower case do not matter."""
        text = " ".join(
            (self.id, self.distribution, self.summary, self.paper, *self.aliases, *self.ids)
        )
        return all(word.lower() in text.lower() for word in words)

    @property
    def last_check(self) -> CheckResult | None:
        """Return the newest result, of its own version if there is one; a failure on that day counts first."""
        same_version = [check for check in self.checks if check.version == self.version]
        return max(
            same_version or self.checks,
            key=lambda check: (check.date, bool(check.failed)),
            default=None,
        )

    def with_checks(self, results: Iterable[CheckResult]) -> Offer:
        """Return it with further results; of two for the same version and rlplug-core, its own stays."""
        known = {(check.version, check.core) for check in self.checks}
        new = tuple(check for check in results if (check.version, check.core) not in known)
        return dataclasses.replace(self, checks=self.checks + new)


def source(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path or address of the registry.

    Raises:
        UsageError: the configuration file cannot be read.
    """
    if environ.get(VARIABLE):
        return environ[VARIABLE]
    path = config_path(environ)
    place = plugins_table(path).get("registry", str(OWN))
    if not isinstance(place, str):
        raise UsageError(f"{path}: plugins.registry must be a path or an address")
    return place


def offers(place: str, refresh: bool = False) -> tuple[Offer, ...]:
    """Return the plugins of a registry, sorted by group and id.

    Args:
        place: a file, a folder of files, or an address with https.
        refresh: read an address again, although it is in the cache.

    Raises:
        UsageError: the registry does not exist, or its contents are not the ones of `#sha256=…`.
    """
    entries = {offer for data in _contents(place, refresh) for offer in _offers(data)}
    ordered = sorted(
        entries, key=lambda entry: (GROUPS.index(entry.group), entry.id, entry.distribution)
    )
    return tuple(ordered)


def distributions_with(group: str, name: str) -> list[str]:
    """Return the distributions that offer a plugin, if this is known without a network; never raises.

    Args:
        name: its id, `distribution/id` or an alias.
    """
    with suppress(UsageError):
        place = source()
        if not _is_address(place) or _cache_path(place).is_file():
            return sorted(
                {
                    offer.distribution
                    for offer in offers(place)
                    if offer.group == group
                    and name in (offer.id, f"{offer.distribution}/{offer.id}", *offer.aliases)
                }
            )
    return []


def installed_offers(records: Iterable[Record]) -> list[Offer]:
    """Return the entries of installed plugins; plugins without an index are left out."""
    records = tuple(records)
    entries = []
    results = all_results()
    checks = check_results(records)
    for record in records:
        description, _ = index.read(record)
        if description is not None:
            names = [field.name for field in fields(Offer) if hasattr(description, field.name)]
            values = {name: getattr(description, name) for name in names}
            if record.group == "algorithms":
                values["learned"] = tuple(
                    str(result) for result in results if result.algorithm == record.id
                )
            entries.append(
                Offer(
                    distribution=record.distribution,
                    version=record.version,
                    checks=checks[record],
                    **values,
                )
            )
    return entries


def write(path: Path, records: Iterable[Record]) -> int:
    """Write the entries of installed plugins into a registry, in place of older ones of the same distributions.

    The results of checks of other versions are kept.

    Returns:
        The number of entries that were written.

    Raises:
        UsageError: the file is there and is not a registry.
    """
    new = installed_offers(records)
    packages = {offer.distribution for offer in new}
    old = offers(str(path)) if path.exists() else ()
    other_entries = [entry for entry in old if entry.distribution not in packages]
    old_checks = {
        (entry.group, entry.id): entry.checks for entry in old if entry.distribution in packages
    }
    written = [
        entry.with_checks(
            check
            for check in old_checks.get((entry.group, entry.id), ())
            if check.version != entry.version
        )
        for entry in new
    ]
    data = {"format": FORMAT, "plugins": [asdict(entry) for entry in (*other_entries, *written)]}
    replace(path, (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())
    return len(new)


def _contents(place: str, refresh: bool) -> Iterator[object]:
    """Yield the JSON values of a registry."""
    if _is_address(place):
        path = _cache_path(place)
        if refresh or not path.is_file():
            _fetch(place, path)
        yield _read(path)
        return
    path = Path(place).expanduser()
    if path.is_dir():
        yield from (_read(file) for file in sorted(path.glob("*.json")))
    else:
        yield _read(path)


def _read(path: Path) -> object:
    try:
        return from_json(path, MOST_BYTES, follow=True)
    except BadFile as error:
        raise UsageError(f"the registry {path} cannot be read: {error.reason}") from error


def _offers(data: Any) -> Iterator[Offer]:
    """Yield the valid entries of a registry; a stranger may have written it."""
    plugins = data.get("plugins") if isinstance(data, dict) else None
    if not isinstance(plugins, list) or data.get("format") != FORMAT:
        raise UsageError(
            f"this is not a registry of format {FORMAT}; 'rlplug index PLUGIN --registry FILE' writes one"
        )
    for entry in plugins:
        offer = _offer(entry)
        if offer is not None:
            yield offer


def _offer(entry: object) -> Offer | None:
    """Return an entry with cleaned strings; None if it is not an entry or has invalid names."""
    try:
        offer = as_type(entry, Offer, Path())
    except BadFile:
        return None
    names = _NAME.fullmatch(offer.id) and _NAME.fullmatch(offer.distribution)
    if not names or offer.group not in GROUPS:
        return None
    return dataclasses.replace(
        offer,
        version=plain(offer.version),
        summary=plain(offer.summary),
        paper=plain(offer.paper),
        ids=tuple(map(plain, offer.ids)),
        aliases=tuple(map(plain, offer.aliases)),
        learned=tuple(map(plain, offer.learned)),
        checks=tuple(map(_clean_check, offer.checks)),
    )


def _clean_check(check: CheckResult) -> CheckResult:
    """Return the result of a check with cleaned strings."""
    return dataclasses.replace(
        check,
        version=plain(check.version, 40),
        core=plain(check.core, 40),
        python=plain(check.python, 40),
        date=check.date if _DATE.fullmatch(check.date) else "undated",
        command=plain(check.command),
        counts={plain(name, 40): count for name, count in check.counts.items()},
        failed=tuple(plain(name, 40) for name in check.failed),
    )


def _is_address(place: str) -> bool:
    return place.startswith(("https://", "http://"))


def _cache_path(address: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return (
        Path(home) / "rlplug" / f"registry-{hashlib.sha256(address.encode()).hexdigest()[:16]}.json"
    )


def _fetch(address: str, path: Path) -> None:
    """Write the contents of an address into the cache.

    Raises:
        UsageError: it cannot be reached, is too large, is not encrypted, or its hash is another one.
    """
    place, fragment = urldefrag(address)
    content = download(place, MOST_BYTES, "registry")
    expected = fragment.removeprefix("sha256=")
    if expected and hashlib.sha256(content).hexdigest() != expected.lower():
        raise UsageError(
            f"the registry {place} has other contents than #sha256={plain(expected)} says; ask who gave you the address"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, content)

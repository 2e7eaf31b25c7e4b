"""Resolve a user's word to one record: `id`, `distribution/id`, an alias; two candidates are an error."""

from __future__ import annotations

from rlplug_core.errors import PluginError, UsageError, did_you_mean
from rlplug_core.plugins.discovery import records
from rlplug_core.plugins.index import aliases
from rlplug_core.plugins.known import KNOWN, install_line
from rlplug_core.plugins.records import MODULES, NOUNS, Group, Record, canonical

#: The provider of ids without a namespace; it also wraps environments that belong to no plugin.
DEFAULT = "gymnasium"


def find(group: Group, name: str) -> Record:
    """Return the record that `name` means, usable or not.

    Raises:
        UsageError: nothing has this name, or several distributions have.
    """
    matches = _matches(group, name)
    if len(matches) > 1:
        full = " or ".join(f"'{record.full_name}'" for record in matches)
        raise UsageError(f"{NOUNS[group]} '{name}' is in several plugins; write {full}")
    if not matches:
        raise UsageError(_unknown(group, name))
    return matches[0]


def env_parts(env_id: str) -> tuple[str, str]:
    """Return the provider's full name in `distribution/namespace/id`, and the id in that provider's form.

    The name is empty if the id does not start with a provider's distribution. Ids of the default provider need no
    namespace, but the full name has one: `rlplug-envs/gymnasium/CartPole-v1`.
    """
    distribution, _, remainder = env_id.partition("/")
    namespace, _, short = remainder.partition("/")
    for record in records() if short else ():
        if record.group == "envs" and (record.distribution, record.id) == (
            canonical(distribution),
            namespace.lower(),
        ):
            return record.full_name, short if record.id == DEFAULT else remainder
    return "", env_id


def provider_in(env_id: str) -> str:
    """Return the provider before the slash or colon of an id, `pettingzoo/…` or `envpool:…`; empty if there is none."""
    prefixes = {env_id.rpartition(mark)[0].lower() for mark in "/:"}
    matching = (
        record.id for record in records() if record.group == "envs" and record.status != "shadowed"
    )
    return next((id for id in matching if id.lower() in prefixes), "")


def ids(group: Group) -> list[str]:
    """Return the short ids of all that is installed, usable or not."""
    return sorted({record.id for record in records() if record.group == group})


def usable(group: Group, name: str) -> Record:
    """Return the record as `find` does, if it may be loaded.

    Raises:
        PluginError: the plugin is disabled, incompatible or broken; it says which, why and what to type.
    """
    record = find(group, name)
    if record.status in ("ok", "shadowed"):
        return record
    raise PluginError(f"{record} is {record.status}: {record.reason}; {remedy(record)}")


def remedy(record: Record) -> str:
    """Return what to type about a record that cannot be used."""
    if record.status == "disabled":
        return "remove it there to use it"
    if record.status == "incompatible":
        return f"python -m pip install --upgrade rlplug-core {record.distribution}"
    return f"python -m pip install --force-reinstall {record.distribution}, or ask its author"


def _matches(group: Group, name: str) -> list[Record]:
    distribution, slash, id = name.rpartition("/")
    matching = [record for record in records() if record.group == group]
    if slash:
        return [
            record
            for record in matching
            if (record.distribution, record.id) == (canonical(distribution), id)
        ]
    matches = [record for record in matching if record.id == name and record.status != "shadowed"]
    matches = matches or [
        record for record in matching if record.status == "ok" and name in aliases(record)
    ]
    enabled = [record for record in matches if record.status != "disabled"]
    working = [record for record in enabled if record.status != "broken"]
    return working or enabled or matches[:1]


def _unknown(group: Group, name: str) -> str:
    matching = [record for record in records() if record.group == group]
    names = {record.id for record in matching} | set(KNOWN[group])
    if "/" in name:
        names = {record.full_name for record in matching}
    for record in matching:
        names.update(aliases(record) if record.status == "ok" else ())
    sentence = f"no {NOUNS[group]} '{name}' is installed{did_you_mean(name, names)}"
    if name in KNOWN[group]:
        return f"{sentence.partition(';')[0]}; it comes with: {install_line(KNOWN[group][name])}"
    if offer := describe_offers(group, name):
        return f"{sentence.partition(';')[0]}; {offer}"
    return f"{sentence} ('rlplug {'plugins' if group in MODULES else 'list'}' shows all)"


def describe_offers(group: Group, name: str) -> str:
    """Return the packages of the registry with a plugin, and the pip lines that install them; "" if none has it."""
    from rlplug_core.plugins.registry import distributions_with  # only a mistake needs it

    distributions = distributions_with(group, name)
    if not distributions:
        return ""
    verb = "has" if len(distributions) == 1 else "have"
    return (
        f"{' and '.join(distributions)} {verb} it: {' or '.join(map(install_line, distributions))}"
    )

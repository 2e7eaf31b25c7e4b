"""Families of environments, `families/<provider>.toml` in a plugin's top-level package; imports no plugin.

    [atari]
    summary = "Games of the Arcade Learning Environment"
    module = "ale_py"                # must be importable; empty if the plugin brings it
    install = "rlplug-envs[atari]"   # the requirement to install
    resumes = "yes"                  # whether resume is bit-exact, or why not
    limit = "each game its own"      # for environments with a `Spec.limit` of 0
    ids = ["ALE/Pong-v5"]

A provider without such a file is one family: the ids in its index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec

from rlplug_core.config.files import from_toml
from rlplug_core.errors import PluginError
from rlplug_core.plugins import index
from rlplug_core.plugins.discovery import usable_records
from rlplug_core.plugins.index import package_root
from rlplug_core.plugins.names import provider_in
from rlplug_core.plugins.records import Record

#: The strings of a family, besides its ids.
TEXTS = ("summary", "module", "install", "resumes")


@dataclass(frozen=True)
class Family:
    """Environments of one kind, from one package. `ids` may hold patterns."""

    name: str
    provider: str
    summary: str
    module: str
    install: str
    resumes: str
    ids: tuple[str, ...]
    limit: str = ""

    @property
    def installed(self) -> bool:
        """Return whether its package is installed; nothing of it is imported."""
        return not self.module or find_spec(self.module.partition(".")[0]) is not None

    @property
    def install_line(self) -> str:
        """Return the command that installs it."""
        quoted = f"'{self.install}'" if "[" in self.install else self.install
        return f"python -m pip install {quoted}"

    def holds(self, env_id: str) -> bool:
        """Return whether an id is in this family; `name` is in it if `name_v3` is."""
        return any(
            fnmatchcase(env_id, pattern) or (env_id and pattern.rpartition("_v")[0] == env_id)
            for pattern in self.ids
        )


def families() -> list[Family]:
    """Return the families of all providers that can be used.

    Raises:
        PluginError: a file of families cannot be read.
    """
    return [family for record in usable_records("envs") for family in _families_of(record)]


def family_of(env_id: str) -> Family | None:
    """Return the family of an id, with or without the module in front of it; None for one that no family lists."""
    bare = env_id if provider_in(env_id) else env_id.rpartition(":")[2]
    return next((family for family in families() if family.holds(bare)), None)


def time_limit(env_id: str, steps: int) -> str:
    """Return a time limit in words; `steps` is 0 if it is unknown, and the family may give a reason."""
    if steps:
        return f"at most {steps:,} steps"
    family = family_of(env_id)
    return (family.limit if family else "") or "no time limit known"


def _families_of(record: Record) -> Iterable[Family]:
    root = package_root(record.top_level)
    path = None if root is None else root / "families" / f"{record.id}.toml"
    if path is None or not path.is_file():
        description, _ = index.read(record)
        summary = description.summary if description else record.summary
        yield Family(
            name=record.id,
            provider=record.id,
            summary=summary,
            module="",
            install=record.distribution,
            resumes="",
            ids=index.env_ids(record),
        )
        return
    try:
        content = from_toml(path)
    except (OSError, ValueError) as error:
        raise PluginError(
            f"{record}: the file of families {path} cannot be read: {error}"
        ) from error
    for name, table in content.items():
        yield _family(record, name, table)


def _family(record: Record, name: str, table: object) -> Family:
    entries = table if isinstance(table, dict) else {}
    texts = [entries.get(key) for key in TEXTS]
    ids = entries.get("ids")
    if not all(isinstance(text, str) for text in texts) or not isinstance(ids, list):
        raise PluginError(
            f"{record}: the family '{name}' is incomplete; it needs the strings {', '.join(TEXTS)} and a list of ids"
        )
    fields = dict(zip(TEXTS, map(str, texts), strict=True))
    limit = str(entries.get("limit", ""))
    return Family(name=name, provider=record.id, ids=tuple(map(str, ids)), limit=limit, **fields)

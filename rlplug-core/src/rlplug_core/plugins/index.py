"""The index: a plugin's description in a JSON file in its package, read instead of importing the plugin.

`rlplug index` writes `index/<id>.json` into the top-level package. It serves display and parsing only: the
configuration dataclass still supplies defaults and validates. A file that does not describe the installed code is not
used: every module that contributed to it, from any distribution, must still have the same hash
(`docs/decisions/0010-an-index-is-tied-to-source-hashes.md`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from rlplug_core.config.files import from_json
from rlplug_core.errors import BadFile, PluginError, plain
from rlplug_core.plugins.records import Record

if TYPE_CHECKING:
    from rlplug_core.config.schema import Option

FORMAT = 2
#: The contract of this version of rlplug-core with its plugins. It increases by one when plugins may break.
CONTRACT = 2
#: The oldest contract with plugins that still work.
OLDEST_CONTRACT = 1
#: The values of `config.Option.type`.
TYPES = frozenset(
    {
        "int",
        "float",
        "bool",
        "str",
        "choice",
        "choices",
        "ints",
        "floats",
        "strs",
        "repeated",
        "target",
    }
)
#: The ability to train agents of one world with different spaces (`Spec.kinds` is not empty).
DIFFERENT_SPACES = "different spaces"
#: The ability to train agents of one world only if they act at the same time (`Spec.turns` is false).
AT_ONCE = "at once"


@dataclass(frozen=True)
class Index:
    """One index file; most of it is for display.

    Attributes:
        modules: the modules it was made from, with their SHA-256.
        contract: the contract of the rlplug-core that wrote it.
    """

    format: int
    group: str
    id: str
    summary: str
    modules: dict[str, str]
    paper: str = ""
    aliases: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    abilities: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    options: tuple[dict[str, Any], ...] = ()
    contract: int = 1


@cache
def read(record: Record) -> tuple[Index | None, str]:
    """Return the valid index of a contribution, or None and why; imports nothing, never raises."""
    index, reason = _from_file(record)
    if index is None:
        return None, reason
    changed = _changed(index)
    if changed:
        return None, f"its index was made from another version of '{plain(changed[0])}'"
    return index, ""


def changed_modules(record: Record) -> list[str]:
    """Return the modules of a contribution's index with another source now; [] if the index cannot be read."""
    index, _ = _from_file(record)
    return _changed(index) if index else []


def _from_file(record: Record) -> tuple[Index | None, str]:
    """Return the index of a contribution, even if the sources have changed since it was written, or None and why."""
    path = file(record)
    if path is None or not path.is_file():
        return None, "it has no index"
    try:
        # Follow links, because installers may link the files of a package.
        index = _parse(_printable(from_json(path, follow=True)))
    except BadFile as error:
        return None, f"its index cannot be read ({error.reason})"
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return None, f"its index cannot be read ({plain(str(error))})"
    if (index.group, index.id) != (record.group, record.id):
        return None, f"its index is that of {plain(index.group)} '{plain(index.id)}'"
    return index, ""


def required(record: Record) -> Index:
    """Return the valid index of a contribution.

    Raises:
        PluginError: it has none; the message says what to type.
    """
    index, reason = read(record)
    if index is None:
        raise PluginError(f"{record}: {reason}; write it with: rlplug index {record.distribution}")
    return index


def file(record: Record) -> Path | None:
    """Return the path of a plugin's index file; None for a top level that is not a package."""
    root = package_root(record.top_level)
    return None if root is None else root / "index" / f"{record.id}.json"


@cache
def package_root(package: str) -> Path | None:
    """Return the directory of a top-level package, without importing it (a dotted `find_spec` would)."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return None
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def contract(record: Record) -> int | None:
    """Return the contract that a plugin was indexed for; None without a valid index."""
    index, _ = read(record)
    return index.contract if index else None


def aliases(record: Record) -> tuple[str, ...]:
    """Return other names of an algorithm if its index is valid."""
    index, _ = read(record)
    return index.aliases if index else ()


def abilities(record: Record) -> tuple[str, ...]:
    """Return the optional abilities of an algorithm, as far as its index is valid."""
    index, _ = read(record)
    return index.abilities if index else ()


def env_ids(record: Record) -> tuple[str, ...]:
    """Return the environment ids or patterns of a provider, as far as its index is valid."""
    index, _ = read(record)
    return index.ids if index else ()


def options(index: Index) -> tuple[Option, ...]:
    """Return the option schema of an indexed algorithm or wrapper."""
    from rlplug_core.config.options import Range
    from rlplug_core.config.schema import Option

    def make_option(data: Mapping[str, Any]) -> Option:
        search = data.get("search")
        searched = Range(search["kind"], tuple(search["values"])) if search else None
        return Option(**{**data, "choices": tuple(data["choices"]), "search": searched})

    return tuple(make_option(data) for data in index.options)


def text(index: Index) -> str:
    """Return the file's content; the same index always gives the same text."""
    return json.dumps(asdict(index), indent=1, ensure_ascii=False) + "\n"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def module_file(module: str) -> Path | None:
    """Return the source of a module, found by joining names to the top-level package's directory."""
    top, *inner_names = module.split(".")
    root = package_root(top)
    if root is None:
        return None if inner_names else _single_file(top)
    base = root.joinpath(*inner_names)
    return next(
        (
            path
            for path in (base / "__init__.py", base.with_name(f"{base.name}.py"))
            if path.is_file()
        ),
        None,
    )


def _single_file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin) if spec and spec.has_location and spec.origin else None


def _printable(value: object) -> Any:
    """Return a foreign value without control characters in its texts, so that a terminal may show it."""
    if isinstance(value, str):
        return value if value.isprintable() else plain(value, 1000)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {name: _printable(item) for name, item in value.items()}
    return value


def about(text: str) -> str:
    """Return a summary for lists: one line, cut after a word if it is longer than the first line of a docstring."""
    return shorten(plain(text, 1000), 120, placeholder=" …")


def _parse(data: object) -> Index:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"format {FORMAT} expected")
    known = {field.name: field.type for field in fields(Index)}
    for name, value in data.items():
        kind: Any = {"int": int, "str": str}.get(str(known.get(name)), (dict, list))
        if name not in known or not isinstance(value, kind):
            raise ValueError(f"'{plain(str(name))}' is unknown or of a wrong type")
        if name != "options" and isinstance(value, dict | list):
            _check_texts(name, value)
    for option in data.get("options", ()):
        _check_option(option, data.get("group") == "algorithms")
    lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
    return Index(**{**data, **lists, "summary": about(data["summary"])})


def _check_texts(name: str, value: Any) -> None:
    """Check that a list, or the dictionary `modules`, contains only strings."""
    if isinstance(value, dict) != (name == "modules"):
        raise ValueError(f"'{name}' is of a wrong type")
    if not all(
        isinstance(item, str) for item in (value.values() if isinstance(value, dict) else value)
    ):
        raise ValueError(f"'{name}' contains values that are not strings")


#: The keys of an option that always have a value, with its type.
_OPTION_KEYS = {
    "name": str,
    "type": str,
    "help": str,
    "choices": list,
    "optional": bool,
    "open_minimum": bool,
    "scheduled": bool,
}


def _check_option(data: Any, shares_names: bool) -> None:
    """Raise an error if an option in an index has a wrong key, type or name.

    With `shares_names`, the name must not be that of a run option: options of algorithms share a namespace with these;
    options of wrappers are typed after the name of the wrapper.
    """
    from rlplug_core.plugins.reserved import RESERVED

    for name, kind in _OPTION_KEYS.items():
        if not isinstance(data[name], kind):
            raise ValueError(f"an option's '{name}' is of a wrong type")
    name = plain(data["name"])
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"'{name}' cannot be an option's name")
    if set(data) != {*_OPTION_KEYS, "default", "minimum", "maximum", "search"}:
        raise ValueError(f"option '{name}' has other keys than this version knows")
    search = data["search"]
    if search is not None and not (
        isinstance(search["kind"], str) and isinstance(search["values"], list)
    ):
        raise ValueError(f"option '{name}' has a search range of a wrong type")
    if not all(
        data[bound] is None or type(data[bound]) in (int, float) for bound in ("minimum", "maximum")
    ):
        raise ValueError(f"option '{name}' has a bound of a wrong type")
    if data["type"] not in TYPES:
        raise ValueError(f"option '{name}' has the unknown type '{plain(data['type'])}'")
    if shares_names and name in RESERVED:
        raise ValueError(f"option '{name}' is a reserved run option")


def _changed(index: Index) -> list[str]:
    """Return the modules of an index with another source now."""
    changed = []
    for module, recorded in index.modules.items():
        path = module_file(module)
        if path is None or digest(path) != recorded:
            changed.append(module)
    return changed

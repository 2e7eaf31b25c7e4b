"""The public contract as data: `python -m tests.contract` writes `tests/contract.json` again after a change.

`breaks` lists each difference that is not an addition. Names, signatures, fields, hooks and options of every run belong
to it; see docs/plugins/contract.md.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import rlplug_core as rl
from rlplug_core.config.run_options import RunOptions
from rlplug_core.config.schema import schema
from rlplug_core.plugins import hook_specs
from rlplug_core.plugins.index import CONTRACT
from rlplug_core.plugins.records import GROUPS

PATH = Path(__file__).with_suffix(".json")
Described: TypeAlias = dict[str, Any]


def snapshot() -> Described:
    """Return the contract as plain data."""
    hooks = {name: value for name, value in vars(hook_specs).items() if name.startswith("rlplug_")}
    return {
        "contract": CONTRACT,
        "groups": sorted(GROUPS),
        "names": {name: describe(getattr(rl, name)) for name in rl.__all__},
        "hooks": {name: _parameters(hook) for name, hook in sorted(hooks.items())},
        "options": {one.name: {"type": one.type, "default": repr(one.default)} for one in schema(RunOptions)},
    }


def describe(value: object) -> Described:
    """Return the public part of a function, a class or a constant."""
    if inspect.isclass(value):
        members = {name: one for name, one in vars(value).items() if not name.startswith("_") or name == "__init__"}
        return {
            "kind": "class",
            "methods": {name: _parameters(one) for name, one in sorted(members.items()) if _callable(one)},
            "fields": {one.name: _default(one) for one in _fields(value)},
            "bases": [base.__name__ for base in value.__mro__[1:] if base.__module__.startswith("rlplug_core")],
        }
    if callable(value) and not hasattr(value, "__origin__"):
        return {"kind": "function", "parameters": _parameters(value)}
    return {"kind": "value", "value": str(value).replace("typing.", "")}


def _callable(member: object) -> bool:
    return callable(member) or isinstance(member, classmethod | staticmethod)


def _parameters(function: Any) -> list[list[str]]:
    """Return name, kind and default of each parameter; the kind of `*` and `**` stays as Python names it."""
    function = getattr(function, "__func__", function)
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [[one.name, one.kind.name, "" if one.default is one.empty else _text(one.default)] for one in found]


def _text(default: object) -> str:
    """Return a default as text, without the address of an object."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(default))


def _fields(value: type) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "made"
    return "" if field.default is dataclasses.MISSING else _text(field.default)


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each difference that may break a plugin; none after a change that only adds."""
    found = [f"the group of entry points rlplug.{name} is gone" for name in {*old["groups"]} - {*new["groups"]}]
    for name, before in old["names"].items():
        after = new["names"].get(name)
        found += [f"rlplug_core.{name} is gone"] if after is None else _changes(f"rlplug_core.{name}", before, after)
    for name, before in old["hooks"].items():
        after = new["hooks"].get(name)
        found += [f"the hook {name} is gone"] if after is None else _lost_parameters(name, before, after)
    for name, before in old["options"].items():
        if new["options"].get(name) != before:
            found.append(f"the run option {name} was {before} and is {new['options'].get(name, 'gone')}")
    return found


def _changes(name: str, before: Described, after: Described) -> list[str]:
    if before["kind"] != after["kind"]:
        return [f"{name} was a {before['kind']} and is a {after['kind']}"]
    if before["kind"] == "value":
        return [] if before == after else [f"{name} was {before['value']} and is {after['value']}"]
    if before["kind"] == "function":
        return _call_changes(name, before["parameters"], after["parameters"])
    found = [f"{name} is no longer a {base}" for base in before["bases"] if base not in after["bases"]]
    for method, parameters in before["methods"].items():
        inherited = method not in after["methods"]
        found += [f"{name}.{method} is gone"] if inherited else _call_changes(
            f"{name}.{method}", parameters, after["methods"][method]
        )  # fmt: skip
    for field, default in before["fields"].items():
        if after["fields"].get(field) != default:
            found.append(f"the field {name}.{field} had the default '{default}' and has '{after['fields'].get(field)}'")
    added = [field for field in after["fields"] if field not in before["fields"]]
    found += [f"the new field {name}.{field} has no default" for field in added if after["fields"][field] == ""]
    return found


def _call_changes(name: str, before: list[list[str]], after: list[list[str]]) -> list[str]:
    """Return the differences that a caller of the old signature would notice."""
    found = _lost_parameters(name, before, after)
    known = {one[0]: one for one in after}
    found += [
        f"the parameter '{one[0]}' of {name} was {one[1:]} and is {known[one[0]][1:]}"
        for one in before
        if one[0] in known and known[one[0]] != one
    ]
    usual = [one[0] for one in before if "POSITIONAL" in one[1]]
    if [one[0] for one in after if "POSITIONAL" in one[1]][: len(usual)] != usual and not found:
        found.append(f"the order of the parameters of {name} changed")
    names = {one[0] for one in before}
    added = [one for one in after if one[0] not in names and one[2] == "" and not one[1].startswith("VAR_")]
    return found + [f"the new parameter '{one[0]}' of {name} has no default" for one in added]


def _lost_parameters(name: str, before: list[list[str]], after: list[list[str]]) -> list[str]:
    known = {one[0] for one in after}
    return [f"the parameter '{one[0]}' of {name} is gone" for one in before if one[0] not in known]


def write() -> None:
    """Write the contract, one name a line."""
    parts = []
    for part, value in snapshot().items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f" {json.dumps(part)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(part)}: {json.dumps(value)}")
    PATH.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()

"""The public contract as data: `python -m tests.contract` writes `tests/contract.json` again after a change.

`breaks` lists each difference that is not an addition. Names, signatures with their types, fields, hooks, options and
the schemas of JSON outputs belong to it; see docs/plugins/contract.md.
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
from rlplug_core.plugins import hook_specs, index, records
from rlplug_core.plugins.index import CONTRACT
from rlplug_core.plugins.records import GROUPS

PATH = Path(__file__).with_suffix(".json")
SCHEMAS = PATH.parents[1] / "docs" / "schemas"
#: The kind of the result, which is listed with the parameters.
RETURN = "RETURN"
#: Marks a value that is always in a JSON output.
REQUIRED = "required"
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
        "algorithms": _options_of_algorithms(),
        "schemas": {
            where: kind
            for path in sorted(SCHEMAS.glob("*.json"))
            for where, kind in outline(json.loads(path.read_bytes()), path.stem).items()
        },
    }


def _options_of_algorithms() -> dict[str, dict[str, str] | None]:
    """Return the types of the options of each algorithm in rlplug-algos: runs, sweeps and scripts name them.

    An algorithm has no options here while its index file is older than its code.
    """
    mine = [one for one in records() if (one.group, one.distribution) == ("algorithms", "rlplug-algos")]
    indexed = {record.id: index.read(record)[0] for record in mine}
    return {
        id: None if known is None else {str(one["name"]): str(one["type"]) for one in known.options}
        for id, known in sorted(indexed.items())
    }


def outline(schema: Mapping[str, Any] | bool, where: str) -> dict[str, str]:
    """Return the type of each value that a JSON schema describes, by its path; it says if the value is required."""
    if isinstance(schema, bool):  # anything, or nothing
        return {where: ""}
    types = schema.get("type", schema.get("$ref", []))
    found = {where: " | ".join([types] if isinstance(types, str) else types)}
    for name, inner in schema.get("properties", {}).items():
        parts = outline(inner, f"{where}.{name}")
        if name in schema.get("required", ()):
            parts[f"{where}.{name}"] = f"{parts[f'{where}.{name}']} | {REQUIRED}"
        found |= parts
    for name, inner in schema.get("$defs", {}).items():
        found |= outline(inner, f"{where}#{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        found |= outline(schema[key], f"{where}{mark}") if isinstance(schema.get(key), dict) else {}
    for key in ("anyOf", "oneOf", "prefixItems"):
        for number, inner in enumerate(schema.get(key, ())):
            found |= outline(inner, f"{where}:{number}")
    return found


def describe(value: object) -> Described:
    """Return the public part of a function, a class or a constant."""
    if inspect.isclass(value):
        members = {name: one for name, one in vars(value).items() if not name.startswith("_") or name == "__init__"}
        types = {name: str(one) for name, one in inspect.get_annotations(value).items() if not name.startswith("_")}
        properties = {name: _parameters(one.fget)[-1][3] for name, one in members.items() if isinstance(one, property)}
        return {
            "kind": "protocol" if getattr(value, "_is_protocol", False) else "class",
            "methods": {name: _parameters(one) for name, one in sorted(members.items()) if _callable(one)},
            "fields": {one.name: _default(one) for one in _fields(value)},
            "types": types | properties,
            "bases": [base.__name__ for base in value.__mro__[1:] if base.__module__.startswith("rlplug_core")],
        }
    if callable(value) and not hasattr(value, "__origin__"):
        return {"kind": "function", "parameters": _parameters(value)}
    return {"kind": "value", "value": str(value).replace("typing.", "")}


def _callable(member: object) -> bool:
    return callable(member) or isinstance(member, classmethod | staticmethod)


def _parameters(function: Any) -> list[list[str]]:
    """Return name, kind, default and type of each parameter, and the type of the result as the last one."""
    function = getattr(function, "__func__", function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    parameters = [
        [one.name, one.kind.name, "" if one.default is one.empty else _text(one.default), _type(one.annotation)]
        for one in signature.parameters.values()
    ]
    return [*parameters, ["return", RETURN, "", _type(signature.return_annotation)]]


def _type(annotation: object) -> str:
    """Return an annotation as text; "" if there is no annotation."""
    return "" if annotation is inspect.Parameter.empty else _text(annotation)


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
    for algorithm, options in old["algorithms"].items():
        found += _option_changes(algorithm, options, new["algorithms"].get(algorithm, {}))
    return found + _schema_changes(old["schemas"], new["schemas"])


def _option_changes(algorithm: str, before: Mapping[str, str], after: Mapping[str, str] | None) -> list[str]:
    return [
        f"the option {name} of {algorithm} was of type {kind} and is {(after or {}).get(name, 'gone')}"
        for name, kind in before.items()
        if after is not None and after.get(name) != kind
    ]


def _schema_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return changes that break readers of a JSON output: a missing value or type, or a value that became optional."""
    found = []
    for path, kind in before.items():
        now = after.get(path)
        if now is None:
            found.append(f"the JSON output {path} is gone")
        elif not _alternatives(now) <= _alternatives(kind) | {REQUIRED}:
            found.append(f"the JSON output {path} was {kind or 'anything'} and is {now or 'anything'}")
        elif REQUIRED in _alternatives(kind) - _alternatives(now):
            found.append(f"the JSON output {path} is no longer required")
    return found


def _changes(name: str, before: Described, after: Described) -> list[str]:
    if before["kind"] != after["kind"]:
        return [f"{name} was a {before['kind']} and is a {after['kind']}"]
    if before["kind"] == "value":
        return [] if before == after else [f"{name} was {before['value']} and is {after['value']}"]
    if before["kind"] == "function":
        return _call_changes(name, before["parameters"], after["parameters"])
    return [*_method_changes(name, before, after), *_field_changes(name, before, after)]


def _method_changes(name: str, before: Described, after: Described) -> list[str]:
    """Return what changed in the bases and methods of a class; a protocol gains no method."""
    found = [f"{name} is no longer a {base}" for base in before["bases"] if base not in after["bases"]]
    for method, parameters in before["methods"].items():
        now = after["methods"].get(method)
        called = f"{name}.{method}"
        found += [f"{called} is gone"] if now is None else _call_changes(called, parameters, now)
    added = after["methods"].keys() - before["methods"].keys() if before["kind"] == "protocol" else ()
    return found + [f"the protocol {name} has the new method {method}" for method in sorted(added)]


def _field_changes(name: str, before: Described, after: Described) -> list[str]:
    """Return what changed in the fields and other attributes of a class."""
    found = []
    for field, default in before["fields"].items():
        if after["fields"].get(field) != default:
            found.append(f"the field {name}.{field} had the default '{default}' and has '{after['fields'].get(field)}'")
    for field, kind in before["types"].items():
        now = after["types"].get(field)
        if now is None or not (_alternatives(now) <= _alternatives(kind) or "Any" in kind):
            found.append(f"{name}.{field} was of type {kind} and is {now or 'gone'}")
    added = [field for field in after["fields"] if field not in before["fields"]]
    return found + [f"the new field {name}.{field} has no default" for field in added if after["fields"][field] == ""]


def _call_changes(name: str, before: list[list[str]], after: list[list[str]]) -> list[str]:
    """Return the differences that a caller of the old signature would notice."""
    found = _lost_parameters(name, before, after)
    known = {one[0]: one for one in after}
    found += [
        f"the parameter '{one[0]}' of {name} was {one[1:]} and is {known[one[0]][1:]}"
        for one in before
        if one[0] in known and not _accepts(known[one[0]], one)
    ]
    usual = [one[0] for one in before if "POSITIONAL" in one[1]]
    if [one[0] for one in after if "POSITIONAL" in one[1]][: len(usual)] != usual and not found:
        found.append(f"the order of the parameters of {name} changed")
    names = {one[0] for one in before}
    added = [one for one in after if one[0] not in names and one[2] == "" and not one[1].startswith("VAR_")]
    return found + [f"the new parameter '{one[0]}' of {name} has no default" for one in added]


def _accepts(after: list[str], before: list[str]) -> bool:
    """Return whether a parameter still takes every former value, or a result is still of a former type."""
    if after[1:3] != before[1:3]:
        return False
    old = _alternatives(before[3])
    new = _alternatives(after[3])
    return "Any" in before[3] or not before[3] or (new <= old if before[1] == RETURN else old <= new)


def _alternatives(annotation: str) -> set[str]:
    return set(annotation.split(" | ")) - {""}


def _lost_parameters(name: str, before: list[list[str]], after: list[list[str]]) -> list[str]:
    known = {one[0] for one in after}
    return [f"the parameter '{one[0]}' of {name} is gone" for one in before if one[0] not in known]


def write() -> None:
    """Write the contract, one name a line; the options of all algorithms must be known."""
    now = snapshot()
    unknown = [id for id, options in now["algorithms"].items() if options is None]
    if unknown:
        raise SystemExit(f"the index of {', '.join(unknown)} is older than the code; first: rlplug index rlplug-algos")
    parts = []
    for part, value in now.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f" {json.dumps(part)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(part)}: {json.dumps(value)}")
    PATH.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()

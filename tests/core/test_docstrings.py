"""Docstrings of the parts that authors use: arguments, results, shapes and errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import rlplug_core
from rlplug_core.learning.update_rules import UpdateRule
from rlplug_core.nets.heads.protocol import Head
from rlplug_core.protocols import Agent

#: The rooms with names that an author's file imports from `rlplug_core`.
ROOMS = ("nets", "acting", "buffers", "learning")
#: Protocols that document a method for all classes that implement it.
PROTOCOLS = (Agent, Head, UpdateRule)
ARRAYS = re.compile(r"\b(Tensor|Array|Obs)\b")
SHAPE = re.compile(r"\[[^\]`]*\]")


def parts() -> Iterator[Callable[..., Any]]:
    """Yield every public function and method of the rooms in the facade that takes arrays."""
    for one in (getattr(rlplug_core, name) for name in rlplug_core.__all__):
        if getattr(one, "__module__", "").removeprefix("rlplug_core.").partition(".")[0] in ROOMS:
            members = list(vars(one).values()) if inspect.isclass(one) else [one]
            yield from (member for member in members if takes_arrays(member) and not member.__name__.startswith("_"))
    for protocol in PROTOCOLS:
        yield from filter(takes_arrays, vars(protocol).values())


def takes_arrays(member: object) -> bool:
    if not inspect.isfunction(member):
        return False
    return any(ARRAYS.search(str(kind)) for name, kind in member.__annotations__.items() if name != "return")


def missing(part: Callable[..., Any], text: str) -> list[str]:
    """Return the missing parts of a docstring: `Returns` if it returns arrays, `Raises` if it raises."""
    wanted = ["Args:"]
    if ARRAYS.search(str(part.__annotations__.get("return", ""))):
        wanted.append("Returns:")
    if re.search(r"^ +raise [A-Z]", inspect.getsource(part), re.MULTILINE):
        wanted.append("Raises:")
    return [word for word in wanted if word not in text] + ([] if SHAPE.search(text) else ["a shape, as [B]"])


def test_docstrings_give_shapes() -> None:
    found = sorted(set(parts()), key=lambda part: part.__qualname__)
    assert len(found) >= 100
    faults = [f"{part.__module__}.{part.__qualname__} lacks {', '.join(lacks(part))}" for part in found if lacks(part)]
    assert not faults, faults


def lacks(part: Callable[..., Any]) -> list[str]:
    """Return the missing parts of a docstring, or nothing if a protocol documents the method."""
    owner, _, name = part.__qualname__.rpartition(".")
    promised = [getattr(protocol, name) for protocol in PROTOCOLS if hasattr(protocol, name)]
    if promised and owner not in {protocol.__name__ for protocol in PROTOCOLS}:
        return []
    return missing(part, inspect.getdoc(part) or "")

"""The check for unsaved state: attributes and generators that differ between a resumed and an uninterrupted run."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from rlplug_core.testing.kit.outcome import Failed
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.state import require_exact, save_and_read
from rlplug_core.testing.kit.subject import BUDGET, Subject

#: Maximum depth of nested objects, and maximum number of parts of a list.
DEEP = 4
LONG = 16
#: Types of objects that are not inspected.
_CLOSED = (type, FunctionType, MethodType, ModuleType, torch.Tensor)
#: Packages of objects that are not inspected either, because they have their own tests.
_KNOWN = ("rlplug_core", "torch", "numpy")


def hidden(subject: Subject) -> None:
    """After a resume every counter, flag and generator equals that of an uninterrupted run."""
    require_exact(subject)
    turns = subject.horizon.turns
    components = save_and_read(Trial(subject).run(turns).state())
    resumed = Trial(subject).resume(components, turns)
    resumed.run_updates(1, BUDGET)  # the first update creates some attributes
    uninterrupted = Trial(subject).run(resumed.turns)
    for noun in ("learner", "agent", "buffer"):
        expected, actual = (
            dict(attributes(getattr(trial, noun), noun, set()))
            for trial in (uninterrupted, resumed)
        )
        for path in expected.keys() & actual.keys():
            if expected[path] != actual[path]:
                raise Failed(
                    f"{path} is {_shorten(actual[path])} after a resume and {_shorten(expected[path])} without; "
                    "add it to the state_dict, or compute it from the clock"
                )


def attributes(
    value: object,
    path: str,
    seen: set[int],
    depth: int = 0,
) -> Iterator[tuple[str, Any]]:
    """Yield plain values and states of generators with their paths, such as `learner.count`; skip all others."""
    if isinstance(value, bool | int | float | str | np.generic):
        yield path, repr(value)
    elif isinstance(value, np.random.Generator):
        yield path, repr(value.bit_generator.state)
    elif isinstance(value, torch.Generator):
        yield path, value.get_state().numpy().tobytes()
    elif isinstance(value, random.Random):
        yield path, repr(value.getstate())
    elif id(value) not in seen and depth < DEEP and not _is_opaque(value):
        seen.add(id(value))
        for name, part in _parts(value):
            yield from attributes(part, f"{path}{name}", seen, depth + 1)


def _is_opaque(value: object) -> bool:
    return isinstance(value, _CLOSED) or type(value).__module__.partition(".")[0] in _KNOWN


def _parts(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a container or an object with their notation."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{number}]", part) for number, part in enumerate(list(value)[:LONG]))
    else:
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())


def _shorten(text: str | bytes) -> str:
    return text if isinstance(text, str) and len(text) < 40 else "another"

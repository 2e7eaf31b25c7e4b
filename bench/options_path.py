"""Count the functions that take the options of `train` before they are typed: `python bench/options_path.py`.

Trains PPO for 256 steps, and records with `sys.setprofile` each function of rlplug_core that takes the options as a
mapping. A stay is one such function with one caller. A climb is a stay in a room above that of the caller, in the order
of `tests/core/test_structure.py`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rlplug_core
from rlplug_core.runs.api import train

CORE = Path(rlplug_core.__file__ or "").parent
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.core.test_structure import ROOMS  # noqa: E402 - needs the changed path

#: The option that a mapping of options contains, with its value.
MARK = ("learning_rate", 0.000321)
OPTIONS: dict[str, Any] = {
    MARK[0]: MARK[1],
    "total_timesteps": 256,
    "num_envs": 2,
    "n_steps": 32,
    "batch_size": 32,
    "final_eval_episodes": 1,
}
#: A file of rlplug_core and the name of a function in it.
Place = tuple[str, str]


def stays() -> list[tuple[Place | None, Place]]:
    """Return each caller, None outside rlplug_core, with the function that takes the options from it."""
    found: dict[tuple[Place | None, Place], None] = {}

    def record(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        place = place_of(frame.f_code)
        if place is not None and any(map(has_options, arguments(frame))):
            found[caller_of(frame), place] = None

    with tempfile.TemporaryDirectory() as directory:
        sys.setprofile(record)
        try:
            train("ppo", "CartPole-v1", OPTIONS, out=directory, hooks=False)
        finally:
            sys.setprofile(None)
    return list(found)


@cache
def place_of(code: CodeType) -> Place | None:
    """Return the place of a function of rlplug_core; None for comprehensions, lambdas and other code."""
    path = Path(code.co_filename)
    if "<" in code.co_name or not path.is_relative_to(CORE):
        return None
    return path.relative_to(CORE).as_posix(), code.co_qualname


def caller_of(frame: FrameType) -> Place | None:
    """Return the nearest function of rlplug_core below a frame on the stack."""
    above = frame.f_back
    while above is not None:
        place = place_of(above.f_code)
        if place is not None:
            return place
        above = above.f_back
    return None


def arguments(frame: FrameType) -> Iterator[object]:
    """Yield the arguments of a call."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[:count]:
        yield frame.f_locals.get(name)


def has_options(value: object) -> bool:
    """Return whether an argument is a mapping with the options."""
    return isinstance(value, Mapping) and value.get(MARK[0]) == MARK[1]


def is_climb(caller: Place | None, callee: Place) -> bool:
    """Return whether a call enters a room above that of its caller."""
    return caller is not None and height(callee) > height(caller)


def height(place: Place) -> int:
    """Return the number of the room of a place, from the ground up."""
    room = place[0].partition("/")[0].removesuffix(".py")
    return next(number for number, rooms in enumerate(ROOMS) if room in rooms)


def main() -> None:
    """Print the calls, and both counts."""
    way = stays()
    for caller, callee in way:
        before = "your code" if caller is None else " ".join(caller)
        print(f"{before:<56} {' '.join(callee)}{'  CLIMB' if is_climb(caller, callee) else ''}")
    print(f"{len(way)} stays, {sum(is_climb(*step) for step in way)} climbs")


if __name__ == "__main__":
    main()

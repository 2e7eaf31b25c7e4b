"""A tested controller, with made-up evaluations and episodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rlplug_core.clock import Clock
from rlplug_core.loop.controllers import ControllerGroup
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.plugins.spec import PartSpec, build_controller
from rlplug_core.types import Episode, State

#: Number of evaluations; returns rise, stay, fall and rise again.
EVENTS = 60


@dataclass(frozen=True)
class Moment:
    """The decisions of a controller after an event."""

    scale: float
    stop: bool
    reason: str
    settings: dict[str, object]


class ControllerSubject:
    """A controller, `NAME` or `NAME:option=value`.

    Raises:
        UsageError: no controller has this name.
        PluginError: the controller cannot be used.
    """

    def __init__(self, name: str) -> None:
        self.controlling = PartSpec.parse("controller", name)

    @contextmanager
    def isolate(self) -> Iterator[None]:
        yield

    def play(
        self,
        start: int = 0,
        end: int = EVENTS,
        state: State | None = None,
    ) -> tuple[list[Moment], State]:
        """Return its decisions after each event from `start` to `end`, and its state. `state` is a saved one."""
        clock = Clock(100 * EVENTS)
        group = ControllerGroup([build_controller(self.controlling)], clock, lambda settings: None)
        if state is not None:
            group.load_state_dict(state["group"])
            clock.scale = state["scale"]["factor"]
        moments = []
        for number in range(start, end):
            clock.steps = 100 * number
            clock.stop = False  # the run continues after a stop
            value = 10.0 * np.sin(number / 9) + 10.0
            info = {"score": value, "is_success": float(value > 10)}
            group.ended([Episode(row, value, 50 + number, value > 10, info) for row in range(2)])
            group.evaluated(
                Evaluation((value, value + 1), (50, 60), (value > 10,) * 2, (info,) * 2)
            )
            moments.append(
                Moment(
                    clock.scale,
                    clock.stop,
                    group.controllers[0].reason,
                    dict(group.settings),
                )
            )
        return moments, {"group": group.state_dict(), "scale": {"factor": clock.scale}}

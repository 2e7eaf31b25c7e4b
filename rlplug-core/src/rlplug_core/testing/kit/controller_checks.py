"""Checks of controllers, with made-up evaluations and episodes: their decisions, state and reasons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlplug_core.clock import Clock
from rlplug_core.loop.controllers import ControllerGroup, settings_of
from rlplug_core.loop.evaluate import Evaluation
from rlplug_core.plugins.spec import PartSpec, build_controller
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.side_effects import check_generators
from rlplug_core.testing.kit.state import save_and_read
from rlplug_core.types import Episode, State

#: Number of evaluations; returns rise, stay, fall and rise again.
EVENTS = 60


@dataclass(frozen=True)
class Decision:
    """The clock, the reason and the settings of a controller after an event."""

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
        self.controller = PartSpec.parse("controller", name)

    def group(self, clock: Clock) -> ControllerGroup:
        """Return a new controller in a group."""
        return ControllerGroup([build_controller(self.controller)], clock, lambda settings: None)

    def play(
        self,
        start: int = 0,
        end: int = EVENTS,
        state: State | None = None,
    ) -> tuple[list[Decision], State]:
        """Return its decisions after each event from `start` to `end`, and its state; `state` is a saved start."""
        clock = Clock(100 * EVENTS)
        group = self.group(clock)
        if state is not None:
            group.load_state_dict(state["group"])
            clock.scale = state["scale"]["factor"]
        decisions = []
        for number in range(start, end):
            clock.steps = 100 * number
            clock.stop = False  # the run continues after a stop
            value = 10.0 * np.sin(number / 9) + 10.0
            info = {"score": value, "is_success": float(value > 10)}
            group.ended([Episode(row, value, 50 + number, value > 10, info) for row in range(2)])
            group.evaluated(
                Evaluation((value, value + 1), (50, 60), (value > 10,) * 2, (info,) * 2)
            )
            reason = group.controllers[0].reason
            decisions.append(Decision(clock.scale, clock.stop, reason, dict(group.settings)))
        return decisions, {"group": group.state_dict(), "scale": {"factor": clock.scale}}


def events(subject: ControllerSubject) -> None:
    """It accepts evaluations and episodes, and sets only `clock.scale`, `clock.stop` and settings."""
    subject.play()


def reason(subject: ControllerSubject) -> None:
    """It gives a reason when it stops the run, and only then."""
    before = ""
    for number, decision in enumerate(subject.play()[0]):
        if decision.stop and not decision.reason:
            raise Failed(
                f"at event {number} it stops the run without a reason; set `reason` together with `clock.stop`"
            )
        if decision.reason != before and not decision.stop:
            raise Failed(
                f"at event {number} it gives the reason '{decision.reason}' but does not stop the run; set "
                "`clock.stop`, too"
            )
        before = decision.reason


def state(subject: ControllerSubject) -> None:
    """After saving and loading in the middle it makes the same decisions as without."""
    uninterrupted, _ = subject.play()
    for middle in (1, EVENTS // 3, EVENTS // 2):
        _, saved = subject.play(end=middle)
        resumed, _ = subject.play(middle, EVENTS, save_and_read(saved))
        for number, (expected, actual) in enumerate(
            zip(uninterrupted[middle:], resumed, strict=True), middle
        ):
            if expected != actual:
                raise Failed(
                    f"saved after {middle} events and loaded again, it decides {actual} after event {number}, and "
                    f"{expected} without; put its counts into `state_dict`"
                )


def settings(subject: ControllerSubject) -> None:
    """Settings depend only on its state, so environments of a resumed run get the same."""
    _, saved = subject.play()
    if not saved["group"]["settings"]:
        raise Skipped("it sets no attributes of environments")
    controllers = subject.group(Clock(1)).controllers
    controllers[0].load_state_dict(saved["group"]["all"][0])
    if (loaded := settings_of(controllers)) != saved["group"]["settings"]:
        raise Failed(
            f"after loading, its settings are {loaded} instead of {saved['group']['settings']}; save their state"
        )


def generators(subject: ControllerSubject) -> None:
    """It leaves the random generators of the process unchanged and uses its own."""
    with check_generators("use your own generator and save its state"):
        subject.play()

"""Checks of controllers: what do they want, save and say?"""

from __future__ import annotations

from rlplug_core.clock import Clock
from rlplug_core.loop.controllers import ControllerGroup, settings_of
from rlplug_core.seeds import global_state
from rlplug_core.testing.kit.controllers import EVENTS, ControllerSubject
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.state import saved_and_read
from rlplug_core.testing.kit.trees import difference, leaves


def events(subject: ControllerSubject) -> None:
    """It can be told of evaluations and episodes, and sets only `clock.scale`, `clock.stop` and settings."""
    subject.told()


def reasons(subject: ControllerSubject) -> None:
    """It says why it stops the run, and only then."""
    before = ""
    for number, one in enumerate(subject.told()[0]):
        if one.stop and not one.reason:
            raise Failed(
                f"at event {number} it stops the run and says no reason; set `reason` together with `clock.stop`"
            )
        if one.reason != before and not one.stop:
            raise Failed(
                f"at event {number} it says '{one.reason}' and does not stop the run; set `clock.stop`, too"
            )
        before = one.reason


def state(subject: ControllerSubject) -> None:
    """Saved in the middle and read again, it wants the same as without."""
    whole, _ = subject.told()
    for middle in (1, EVENTS // 3, EVENTS // 2):
        _, half = subject.told(end=middle)
        rest, _ = subject.told(middle, EVENTS, saved_and_read(half))
        for number, (one, other) in enumerate(zip(whole[middle:], rest, strict=True), middle):
            if one != other:
                raise Failed(
                    f"saved after {middle} events and read again, it wants {other} after event {number}, and {one} "
                    "without; what it counts belongs in `state_dict`"
                )


def settings(subject: ControllerSubject) -> None:
    """Settings depend on its state alone, so that a resumed run's environments get the same."""
    _, saved = subject.told()
    if not saved["crew"]["settings"]:
        raise Skipped("it sets no attributes of environments")
    crew = ControllerGroup([subject.controlling.built()], Clock(1), lambda settings: None)
    crew.controllers[0].load_state_dict(saved["crew"]["all"][0])
    if (found := settings_of(crew.controllers)) != saved["crew"]["settings"]:
        raise Failed(
            f"read again, its settings are {found}, and were {saved['crew']['settings']}; save what they rest on"
        )


def generators(subject: ControllerSubject) -> None:
    """The process's random generators stand where they stood: what it draws, it draws from its own."""
    before = leaves(global_state())
    subject.told()
    if path := difference(before, leaves(global_state())):
        raise Failed(
            f"it draws from the process-wide generator '{path}'; keep one of your own, and its state"
        )

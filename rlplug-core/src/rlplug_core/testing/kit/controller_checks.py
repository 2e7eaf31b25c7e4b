"""Checks of controllers: their decisions, state and reasons."""

from __future__ import annotations

from rlplug_core.clock import Clock
from rlplug_core.loop.controllers import ControllerGroup, settings_of
from rlplug_core.plugins.spec import build_controller
from rlplug_core.seeds import global_state
from rlplug_core.testing.kit.controllers import EVENTS, ControllerSubject
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.state import save_and_read
from rlplug_core.testing.kit.trees import difference, leaves


def events(subject: ControllerSubject) -> None:
    """It accepts evaluations and episodes, and sets only `clock.scale`, `clock.stop` and settings."""
    subject.play()


def reasons(subject: ControllerSubject) -> None:
    """It gives a reason when it stops the run, and only then."""
    before = ""
    for number, moment in enumerate(subject.play()[0]):
        if moment.stop and not moment.reason:
            raise Failed(
                f"at event {number} it stops the run without a reason; set `reason` together with `clock.stop`"
            )
        if moment.reason != before and not moment.stop:
            raise Failed(
                f"at event {number} it gives the reason '{moment.reason}' but does not stop the run; set "
                "`clock.stop`, too"
            )
        before = moment.reason


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
    group = ControllerGroup(
        [build_controller(subject.controlling)], Clock(1), lambda settings: None
    )
    group.controllers[0].load_state_dict(saved["group"]["all"][0])
    if (loaded := settings_of(group.controllers)) != saved["group"]["settings"]:
        raise Failed(
            f"after loading, its settings are {loaded} instead of {saved['group']['settings']}; save their state"
        )


def generators(subject: ControllerSubject) -> None:
    """It leaves the random generators of the process unchanged and uses its own."""
    before = leaves(global_state())
    subject.play()
    if path := difference(before, leaves(global_state())):
        raise Failed(
            f"it draws from the process-wide generator '{path}'; use your own generator and save its state"
        )

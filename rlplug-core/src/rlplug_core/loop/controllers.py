"""The built-in controllers, and the group of all controllers of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from rlplug_core.clock import Clock, Steering
from rlplug_core.config.import_string import describe
from rlplug_core.config.numbers import figures
from rlplug_core.config.options import Config, Count, Natural, NonNegative, UnitInterval
from rlplug_core.config.run_options import RunOptions
from rlplug_core.errors import RlplugError, UsageError
from rlplug_core.protocols import (
    Controller,
    Evaluated,
    SupportsEnded,
    SupportsEvaluated,
    SupportsSettings,
)
from rlplug_core.types import Episode, State


@dataclass(frozen=True)
class TargetReturnConfig(Config):
    """The option of `TargetReturn`."""

    target: float | None = None  # the mean return of an evaluation that ends the run


class TargetReturn:
    """Stop the run, once, at the first evaluation with a mean return that reaches a target."""

    Config = TargetReturnConfig

    def __init__(self, config: TargetReturnConfig) -> None:
        if config.target is None:
            raise UsageError("target-return has no target; write target-return:target=200")
        self.target = config.target
        self.reason = ""

    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None:
        if evaluation.mean >= self.target and not self.reason:
            self.reason = f"an evaluation reached {figures(evaluation.mean)} (--target-return {self.target:g})"
            clock.stop = True

    def state_dict(self) -> State:
        return {"reason": self.reason}

    def load_state_dict(self, state: State) -> None:
        self.reason = state["reason"]


class Patience:
    """Counts evaluations since the best one.

    Args:
        patience: evaluations without improvement until patience ends.
        margin: an evaluation improves on the best one if it exceeds it by more than this.
        start: env steps before which evaluations do not count.
    """

    def __init__(
        self,
        patience: int,
        margin: float = 0.0,
        start: int = 0,
    ) -> None:
        self.patience = patience
        self.margin = margin
        self.start = start
        self.best: float | None = None
        self.waited = 0

    def runs_out(self, mean_return: float, steps: int) -> bool:
        """Return whether patience ends with the evaluation at env step `steps`; then the count starts again."""
        if steps < self.start:
            return False
        if self.best is None or mean_return > self.best + self.margin:
            self.best = mean_return
            self.waited = 0
            return False
        self.waited += 1
        return self.waited % self.patience == 0

    def state_dict(self) -> State:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: State) -> None:
        self.best = state["best"]
        self.waited = state["waited"]


@dataclass(frozen=True)
class PlateauConfig(Config):
    """Options of `Plateau`."""

    patience: Count = 5  # evaluations without improvement after which learning rates shrink
    factor: UnitInterval = 0.5  # factor of the learning rates
    # an evaluation improves on the best one if it exceeds it by more than this
    min_delta: NonNegative = 0.0
    start: Natural = 0  # env steps before which evaluations do not count


class Plateau:
    """Multiply every learning rate by a factor after a number of evaluations without improvement."""

    Config = PlateauConfig
    reason = ""

    def __init__(self, config: PlateauConfig) -> None:
        self.patience = Patience(config.patience, config.min_delta, config.start)
        self.factor = config.factor

    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None:
        if self.patience.runs_out(evaluation.mean, clock.steps):
            clock.scale *= self.factor

    def state_dict(self) -> State:
        return self.patience.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.patience.load_state_dict(state)


@dataclass(frozen=True)
class EarlyStoppingConfig(Config):
    """Options of `EarlyStopping`."""

    patience: Count = 10  # evaluations without improvement after which the run stops
    # an evaluation improves on the best one if it exceeds it by more than this
    min_delta: NonNegative = 0.0
    start: Natural = 0  # env steps before which evaluations do not count


class EarlyStopping:
    """Stop the run, once, after a number of evaluations without improvement."""

    Config = EarlyStoppingConfig

    def __init__(self, config: EarlyStoppingConfig) -> None:
        self.patience = Patience(config.patience, config.min_delta, config.start)
        self.reason = ""

    def evaluated(self, evaluation: Evaluated, clock: Steering) -> None:
        if self.patience.runs_out(evaluation.mean, clock.steps) and not self.reason:
            count = self.patience.patience
            best = self.patience.best
            assert best is not None  # patience runs out after a best one
            self.reason = (
                f"{count} evaluations did not improve on {figures(best)} "
                f"(--early-stopping-patience {count})"
            )
            clock.stop = True

    def state_dict(self) -> State:
        return {"reason": self.reason, **self.patience.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.reason = state["reason"]
        self.patience.load_state_dict(state)


class Limits:
    """Stops the run, once, after a number of episodes or seconds; 0 means unlimited."""

    def __init__(self, episodes: int = 0, seconds: float = 0.0) -> None:
        self.episodes = episodes
        self.seconds = seconds
        self.reason = ""

    def check(self, episodes: int, seconds: float, clock: Clock) -> None:
        """Check the episodes and seconds of the run so far, including earlier sessions."""
        if self.reason:
            return
        if self.episodes and episodes >= self.episodes:
            self.reason = f"{episodes:,} episodes have ended (--max-episodes {self.episodes})"
        elif self.seconds and seconds >= self.seconds:
            self.reason = f"{seconds:,.0f} seconds have passed (--max-seconds {self.seconds:g})"
        clock.stop = clock.stop or bool(self.reason)

    def state_dict(self) -> State:
        return {"reason": self.reason}

    def load_state_dict(self, state: State) -> None:
        self.reason = state["reason"]


def controllers_of(options: RunOptions) -> list[Controller]:
    """Return the controllers that have their own run options."""
    controllers: list[Controller] = []
    if options.target_return is not None:
        controllers.append(TargetReturn(TargetReturnConfig(options.target_return)))
    if options.lr_patience:
        controllers.append(
            Plateau(
                PlateauConfig(
                    options.lr_patience,
                    options.lr_factor,
                    options.min_delta,
                    options.patience_start,
                )
            )
        )
    if options.early_stopping_patience:
        controllers.append(
            EarlyStopping(
                EarlyStoppingConfig(
                    options.early_stopping_patience, options.min_delta, options.patience_start
                )
            )
        )
    return controllers


T = TypeVar("T")
#: The types of a setting or of the items of a list.
PLAIN = (bool, int, float, str, type(None))


class ControllerGroup:
    """Calls the controllers of a run after evaluations and episodes.

    Args:
        apply: receives changed settings of environments.
    """

    def __init__(
        self,
        controllers: Iterable[Controller],
        clock: Clock,
        apply: Callable[[Mapping[str, object]], None],
    ) -> None:
        self.controllers = list(controllers)
        self.clock = Steering(clock)
        self.apply = apply
        #: Whether a controller reads episodes, at the step that ends them.
        self.listens = any(isinstance(controller, SupportsEnded) for controller in self.controllers)
        self.settings = settings_of(self.controllers)

    def evaluated(self, evaluation: Evaluated) -> str:
        """Call the controllers after an evaluation; return the first new reason to stop, or an empty string."""
        return self._call_each(
            "evaluated",
            lambda controller: (
                controller.evaluated(evaluation, self.clock)
                if isinstance(controller, SupportsEvaluated)
                else None
            ),
        )

    def ended(self, episodes: Sequence[Episode]) -> str:
        """Call the controllers after episodes ended; return the first new reason to stop, or an empty string."""
        return self._call_each(
            "ended",
            lambda controller: (
                controller.ended(episodes, self.clock)
                if isinstance(controller, SupportsEnded)
                else None
            ),
        )

    def _call_each(
        self,
        method: str,
        call: Callable[[Controller], None],
    ) -> str:
        first_reason = ""
        for controller in self.controllers:
            before = controller.reason
            self.clock.stopped = False
            call_controller(controller, method, partial(call, controller))
            reason = controller.reason if controller.reason != before else ""
            if self.clock.stopped and not reason:
                reason = (
                    controller.reason
                    or f"{type(controller).__name__} stopped it and gave no reason"
                )
            first_reason = first_reason or reason
        if (settings := settings_of(self.controllers)) != self.settings:
            self.settings = settings
            self.apply(settings)
        return first_reason

    def state_dict(self) -> State:
        return {
            "all": [controller.state_dict() for controller in self.controllers],
            "settings": dict(self.settings),
        }

    def load_state_dict(self, state: State) -> None:
        for controller, saved in zip(self.controllers, state["all"], strict=True):
            controller.load_state_dict(saved)
        self.settings = dict(state["settings"])


def settings_of(controllers: Iterable[Controller]) -> dict[str, object]:
    """Return the attributes that controllers set in environments; the last controller wins.

    Raises:
        RlplugError: a value is not a number, a string or a list of them.
    """
    settings: dict[str, object] = {}
    for controller in controllers:
        if isinstance(controller, SupportsSettings):
            requested = call_controller(controller, "settings", controller.settings)
            settings |= {name: _plain(controller, name, value) for name, value in requested.items()}
    return settings


def call_controller(
    controller: object,
    method: str,
    call: Callable[[], T],
) -> T:
    """Call a controller's method.

    Raises:
        RlplugError: it raised. A controller changes the learning of a run, so the run ends.
    """
    try:
        return call()
    except RlplugError:
        raise
    except Exception as error:  # a foreign controller may raise anything
        name = type(controller).__name__
        raise RlplugError(
            f"controller {name} failed in {method}: {describe(error)}; --traceback shows where"
        ) from error


def _plain(controller: object, name: str, value: object) -> object:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        return [_plain(controller, name, item) for item in value]
    raise RlplugError(
        f"controller {type(controller).__name__} sets '{name}' to a {type(value).__name__}; settings are recorded, so "
        "they are numbers, strings, booleans or lists of them"
    )

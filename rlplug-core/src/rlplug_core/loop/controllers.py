"""Controllers: what reacts to evaluation results; stateful, saved, able to set only `clock.scale` and `clock.stop`.

`Limits` beside them ends a run by what has been spent, episodes or seconds.
"""

from __future__ import annotations

from rlplug_core.clock import Clock
from rlplug_core.config.run_options import RunOptions
from rlplug_core.protocols import Controller
from rlplug_core.types import State


class TargetReturn:
    """Stops the run, once, at the first evaluation whose mean return reaches `target`."""

    def __init__(self, target: float) -> None:
        self.target = target
        self.reason = ""

    def evaluated(self, mean_return: float, clock: Clock) -> None:
        if mean_return >= self.target and not self.reason:
            self.reason = f"an evaluation reached {mean_return:,.1f} (--target-return {self.target:g})"
            clock.stop = True

    def state_dict(self) -> State:
        return {"reason": self.reason}

    def load_state_dict(self, state: State) -> None:
        self.reason = state["reason"]


class Patience:
    """Counts evaluations since the best one; one that is not better by more than `margin` is no improvement."""

    def __init__(self, patience: int, margin: float = 0.0) -> None:
        self.patience, self.margin = patience, margin
        self.best: float | None = None
        self.waited = 0

    def runs_out(self, mean_return: float) -> bool:
        """Return whether patience ends with this evaluation; then counting begins again."""
        if self.best is None or mean_return > self.best + self.margin:
            self.best, self.waited = mean_return, 0
            return False
        self.waited += 1
        return self.waited % self.patience == 0

    def state_dict(self) -> State:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: State) -> None:
        self.best, self.waited = state["best"], state["waited"]


class Plateau:
    """Multiplies every learning rate by `factor` after each `patience` evaluations without improvement."""

    reason = ""

    def __init__(self, patience: Patience, factor: float = 0.5) -> None:
        self.patience, self.factor = patience, factor

    def evaluated(self, mean_return: float, clock: Clock) -> None:
        if self.patience.runs_out(mean_return):
            clock.scale *= self.factor

    def state_dict(self) -> State:
        return self.patience.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.patience.load_state_dict(state)


class EarlyStop:
    """Stops the run, once, after `patience` evaluations without improvement."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.reason = ""

    def evaluated(self, mean_return: float, clock: Clock) -> None:
        if self.patience.runs_out(mean_return) and not self.reason:
            count, best = self.patience.patience, self.patience.best
            self.reason = (
                f"{count} evaluations brought nothing better than {best:,.1f} (--early-stopping-patience {count})"
            )
            clock.stop = True

    def state_dict(self) -> State:
        return {"reason": self.reason, **self.patience.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.reason = state["reason"]
        self.patience.load_state_dict(state)


class Limits:
    """Stops the run, once, when it has had so many episodes or taken so many seconds; 0 is no limit."""

    def __init__(self, episodes: int = 0, seconds: float = 0.0) -> None:
        self.episodes, self.seconds = episodes, seconds
        self.reason = ""

    def spent(self, episodes: int, seconds: float, clock: Clock) -> None:
        """Take note of what the run has had so far, earlier sessions included."""
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
    """The controllers that a run's options ask for."""
    found: list[Controller] = []
    if options.target_return is not None:
        found.append(TargetReturn(options.target_return))
    if options.lr_patience:
        found.append(Plateau(Patience(options.lr_patience, options.min_delta), options.lr_factor))
    if options.early_stopping_patience:
        found.append(EarlyStop(Patience(options.early_stopping_patience, options.min_delta)))
    return found

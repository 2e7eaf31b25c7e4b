"""Checks that train: better than random on environments with known best returns, within a budget of env steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from gymnasium import spaces

from rlplug_core.clock import Clock
from rlplug_core.loop.evaluate import evaluate
from rlplug_core.testing import envs
from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.short_run import Trial
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.testing.kit.termination import require_bootstrap
from rlplug_core.types import Array

#: Maximum env steps, env steps between two evaluations, and environments in training.
STEPS = 30_000
EVERY = 3_000
ROWS = 8


class Stay(envs.Vector):
    """One step per episode: 1 for staying (action 1), which truncates the episode; 2 for leaving, which terminates it.

    Staying forever is worth 1 / (1 - γ), which is better for every γ above 1/2, unless truncation counts as
    termination."""

    obs = spaces.Box(1, 1, (1,), np.float32)

    def observe(self) -> Array:
        return np.ones((self.num_envs, 1), np.float32)

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        stay = action == 1
        return np.where(stay, 1.0, 2.0), ~stay, stay


class Shifted(envs.Continuous):
    """Observe x in [-1, 1] and act once: the reward is -(a - 1/2 - x/4)²."""

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        taken = np.clip(action[:, 0], -1, 1)
        return self.terminate(-np.square(taken - 0.5 - self.state["x"] / 4))


class Tempting(envs.Vector):
    """Observe one of four cues and act once: 1 for its action. After the other action, the next episode pays 3 for
    any action.

    All episodes have one step, which terminates in even rows and is truncated in odd ones; its successor looks empty.
    An agent that includes the next episode gets 3γ for the wrong action: through values if the bonus is visible
    (after the first two cues), through rewards if it is not."""

    obs = spaces.Box(0, 1, (7,), np.float32)
    #: The paid action of each cue; -1 for the episodes after a cue: 4 pays a bonus and 5 does not, and they look
    #: different; 6 pays it and 7 does not, and they look the same.
    right: ClassVar[Array] = np.array([0, 1, 1, 0, -1, -1, -1, -1])
    looks: ClassVar[Array] = np.eye(8, dtype=np.float32)[[0, 1, 2, 3, 4, 5, 6, 6, 7], :7]
    cues = 4
    nothing = 8

    def open(self, rows: Array) -> None:
        place = self.state.setdefault("place", np.zeros(self.num_envs, np.int64))
        upcoming = self.state.setdefault("upcoming", np.full(self.num_envs, self.nothing))
        cue = self.generator.integers(0, self.cues, self.num_envs)
        place[rows] = np.where(upcoming == self.nothing, cue, upcoming)[rows]

    def observe(self) -> Array:
        return self.looks[self.state["place"]]

    def move(self, action: Array) -> tuple[Array, Array, Array]:
        place = self.state["place"].copy()
        right = action == self.right[place]
        # After the cue: a bonus, visible or not, or an episode without one.
        next_place = self.cues + 2 * (place >= 2) + self.is_empty(right)
        self.state["upcoming"] = np.where(place >= self.cues, self.nothing, next_place)
        self.state["place"][:] = self.nothing
        cut = np.arange(self.num_envs) % 2 == 1
        bonus = (place == 4) | (place == 6)
        return np.where(bonus, 3.0, right), ~cut, cut

    def is_empty(self, right: Array) -> Array:
        """Return whether the next episodes pay nothing; `right` says if the actions matched their cues [N]."""
        return right


class RandomBonus(Tempting):
    """The same, but it is random whether the next episode pays."""

    def is_empty(self, right: Array) -> Array:
        return self.generator.integers(0, 2, self.num_envs)


class NoBonus(Tempting):
    """The same, but no next episode pays."""

    def is_empty(self, right: Array) -> Array:
        return np.ones_like(right)


def chain(subject: Subject) -> None:
    """It finds the better end of a chain of five places: return 0.9 of 1; random actions get 0.5."""
    subject.require(envs.Chain)
    _check_return(subject, envs.Chain, 0.9)


def continuous(subject: Subject) -> None:
    """It finds the best continuous actions: return -0.1 of 0; always acting 0 gets -0.27."""
    subject.require(envs.Continuous)
    _check_return(subject, Shifted, -0.1)


def masked(subject: Subject) -> None:
    """It finds the better of two allowed actions: return 3.6 of 4; random actions get 2."""
    subject.require(envs.Masked)
    _check_return(subject, envs.Masked, 3.6)


def episodes(subject: Subject) -> None:
    """In 3 of 4 cases it takes 1 in its own episode, and not the action that makes the next episode pay 3."""
    subject.require(envs.Chain)  # it has the same kind of actions
    share = _accuracy(subject, Tempting)
    if share >= 0.75:
        return
    if not any(_accuracy(subject, variant) >= 0.75 for variant in (RandomBonus, NoBonus)):
        raise Skipped("it does not learn this without a bonus either")
    raise Failed(
        f"after {STEPS:,} env steps it takes 1 in its own episode in {share:.0%} of cases, else the action that makes "
        "the next one pay: rewards of a row's next episode must not reach back over the end of this one"
    )


def _accuracy(subject: Subject, env_class: type[Tempting]) -> float:
    """Return the final share of right actions; stop early if two evaluations in a row have no other."""
    share = 0.0
    for mean in _mean_returns(subject, env_class, 40):
        if share + mean >= 2:
            return mean
        share = mean
    return share


def truncated(subject: Subject) -> None:
    """If it bootstraps: it stays for 1 per step forever, although truncated after each step, and never leaves for 2."""
    subject.require(envs.Chain)  # it has the same kind of actions
    require_bootstrap(subject)
    if 1 not in _mean_returns(subject, Stay, 10):
        raise Failed(
            f"after {STEPS:,} env steps it leaves for 2 instead of staying for 1 per step forever"
        )


def _check_return(
    subject: Subject,
    env_class: type[envs.Vector],
    required: float,
) -> None:
    best = float("-inf")
    for mean in _mean_returns(subject, env_class, 100):
        best = max(best, mean)
        if best >= required:
            return
    raise Failed(
        f"its best mean return in {STEPS:,} env steps is {best:.3g}; {required:g} is required"
    )


def _mean_returns(
    subject: Subject,
    env_class: type[envs.Vector],
    episodes: int,
) -> Iterator[float]:
    """Train a new learner; yield the mean return of an evaluation after each `EVERY` env steps."""
    trial = Trial(subject, env_class(ROWS), total=STEPS)
    while not trial.clock.done:
        trial.run(trial.turns + EVERY // ROWS)
        yield evaluate(trial.learner.agent(), env_class(episodes), 3, Clock(STEPS)).mean

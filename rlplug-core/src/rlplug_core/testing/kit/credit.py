"""Checks of credit: which steps a sample learns from. What one sample learns shows where all others weigh nothing.

Two halves of the rows know nothing of each other. Where some number of one half changes, samples of the other may
follow only through what is common to all, such as advantages scaled to deviation 1. As much, and no more, may samples
follow what they have no part in within their own half.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Moved, Probe, Story
from rlplug_core.testing.kit.samples import Samples
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.types import Array

#: The weight of samples that are to be left out: 0 would say that they are no transitions.
LITTLE = 1e-6
#: The deviation of rewards: so small that no error leaves the part of a Huber loss where its size matters.
MODEST = 0.1
#: Samples that are looked at: single steps of single episodes among them.
MANY = 256
#: A share of a response below which it is rounding, and how much more than the other half's counts.
ROUNDING = 1e-3
MARGIN = 3.0
#: The share of responding numbers that must not respond otherwise than they should.
SILENT = 0.2

Mask = Callable[[Array], Array]


def episodes(subject: Subject) -> None:
    """A sample learns nothing from the row's next episode: sums of rewards, advantages and values end with its own."""
    usual = _response(subject, "", _even)
    own = _norm(_response(subject, "rewards", _even) - usual)
    if not own:
        raise Skipped("its first batch teaches nothing that rewards have a part in")
    near = _norm(_response(subject, "sequel", _even) - usual)
    far = _norm(_response(subject, "sequel", _even, elsewhere=True) - usual)
    if near > MARGIN * far + ROUNDING * own:
        raise Failed(
            f"what a sample teaches follows the row's next episode, {near / own:.0%} as much as its own rewards; where "
            "an episode ends, cut sums over rewards and the recursion of advantages (terminated | truncated), and take "
            "the value of the step's own next_obs"
        )


def rewards(subject: Subject) -> None:
    """A sample learns from its own reward: nothing is a step too early or too late."""
    usual = _response(subject, "", _opening)
    every = _response(subject, "rewards", _opening)
    wanted = np.abs(every - usual)
    own = np.abs(_response(subject, "opening", _opening) - usual)
    far = _norm(_response(subject, "opening", _opening, elsewhere=True) - usual) / np.sqrt(
        len(usual)
    )
    responding = wanted > ROUNDING * wanted.max() + 10 * far
    if not responding.any():
        raise Skipped("its first batch teaches nothing that rewards have a part in")
    silent = (own <= MARGIN * far + ROUNDING * wanted) & responding
    if (share := silent.sum() / responding.sum()) > SILENT:
        raise Failed(
            f"{share:.0%} of what rewards have a part in does not follow the sample's own reward; rewards, advantages "
            "or targets stand a step beside the observation and action that they belong to"
        )


def _even(places: Array) -> Array:
    """Every second episode, in the first half of the rows."""
    even: Array = (places[..., 1] % 2 == 0) & _half(places)
    return even


def _opening(places: Array) -> Array:
    """The first steps of episodes, in the first half of the rows."""
    opening: Array = (places[..., 2] == 0) & _half(places)
    return opening


def later_matters(subject: Subject) -> bool:
    """Return whether samples follow what is seen after them: then it bootstraps.

    Raises:
        Skipped: it cannot be seen.
    """
    usual = _response(subject, "", _opening)
    near, far = (
        _norm(_response(subject, "later", _opening, elsewhere) - usual)
        for elsewhere in (False, True)
    )
    return near > MARGIN * far + ROUNDING * _norm(usual)


def _half(places: Array) -> Array:
    half: Array = (places[..., 0] < places[..., 0].max() // 2 + 1) & (places[..., 0] >= 0)
    return half


def _response(subject: Subject, moved: Moved, mask: Mask, elsewhere: bool = False) -> Array:
    """The response of the samples of a mask where something has moved.

    Raises:
        Skipped: its updates do not go by weights, or nothing says which sample is which.
    """
    samples = subject.once(
        ("samples", moved, elsewhere), lambda: _samples(subject, moved, elsewhere)
    )
    return samples.response(lambda places: np.where(mask(places), 1.0, LITTLE))


def _samples(subject: Subject, moved: Moved, elsewhere: bool) -> Samples:
    story = Story("either", moved=moved, elsewhere=elsewhere, scale=MODEST)
    samples = Samples(subject, Probe(subject.spec, story, placing=True), MANY)
    if not moved:
        nothing = samples.response(lambda places: np.full(places.shape[:-1], LITTLE))
        everything = samples.response(lambda places: np.ones(places.shape[:-1]))
        if _norm(nothing) > 0.1 * _norm(everything):
            raise Skipped("its updates do not go by the weights of its batches")
    return samples


def _norm(response: Array) -> float:
    return float(np.linalg.norm(response))

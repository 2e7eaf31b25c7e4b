"""Checks of credit assignment: the steps that a sample learns from. To see one sample, all others get almost no weight.

The two halves of the rows are independent. If a number in one half changes, samples of the other half may react only
through common factors, such as advantages scaled to deviation 1. Samples may react to unrelated steps of their own half
to the same degree and no more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlplug_core.testing.kit.outcome import Failed, Skipped
from rlplug_core.testing.kit.probe import Change, Probe, Scenario
from rlplug_core.testing.kit.samples import Samples
from rlplug_core.testing.kit.subject import Subject
from rlplug_core.types import Array

#: The weight of excluded samples; 0 would mean that they are not transitions.
LITTLE = 1e-6
#: The standard deviation of rewards: so small that all errors stay in the quadratic part of a Huber loss.
MODEST = 0.1
#: Number of samples, including single steps of single episodes.
MANY = 256
#: The share of a response that counts as rounding.
ROUNDING = 1e-3
#: A response of one half counts if it is more than this many times that of the other half.
MARGIN = 3.0
#: The allowed share of numbers without the expected response.
SILENT = 0.2

Mask = Callable[[Array], Array]


def episodes(subject: Subject) -> None:
    """A sample learns nothing from the next episode of its row: sums, advantages and values end with its own."""
    baseline = _response(subject, "", _even)
    own_effect = _norm(_response(subject, "rewards", _even) - baseline)
    if not own_effect:
        raise Skipped("rewards have no effect on its first batch")
    same_half = _norm(_response(subject, "sequel", _even) - baseline)
    other_half = _norm(_response(subject, "sequel", _even, second_half=True) - baseline)
    if same_half > MARGIN * other_half + ROUNDING * own_effect:
        raise Failed(
            f"updates depend on the next episode of the row, {same_half / own_effect:.0%} as much as on the episode's "
            "own rewards; "
            "at the end of an episode, cut sums over rewards and the recursion of advantages (terminated | truncated), "
            "and use the value of the step's own next_obs"
        )


def rewards(subject: Subject) -> None:
    """A sample learns from its own reward, and not from one of a step earlier or later."""
    baseline = _response(subject, "", _opening)
    all_rewards = _response(subject, "rewards", _opening)
    reward_change = np.abs(all_rewards - baseline)
    own_change = np.abs(_response(subject, "opening", _opening) - baseline)
    other_half = _norm(
        _response(subject, "opening", _opening, second_half=True) - baseline
    ) / np.sqrt(len(baseline))
    responding = reward_change > ROUNDING * reward_change.max() + 10 * other_half
    if not responding.any():
        raise Skipped("rewards have no effect on its first batch")
    silent = (own_change <= MARGIN * other_half + ROUNDING * reward_change) & responding
    if (share := silent.sum() / responding.sum()) > SILENT:
        raise Failed(
            f"{share:.0%} of the numbers that depend on rewards do not depend on the sample's own reward; rewards, "
            "advantages or targets are shifted by a step against their observation and action"
        )


def _even(places: Array) -> Array:
    """Return a mask of every second episode in the first half of the rows."""
    return (places[..., 1] % 2 == 0) & _in_first_half(places)


def _opening(places: Array) -> Array:
    """Return a mask of the first steps of episodes in the first half of the rows."""
    return (places[..., 2] == 0) & _in_first_half(places)


def depends_on_later_steps(subject: Subject) -> bool:
    """Return whether samples depend on later observations, that is, whether the algorithm bootstraps.

    Raises:
        Skipped: this cannot be measured.
    """
    baseline = _response(subject, "", _opening)
    same_half, other_half = (
        _norm(_response(subject, "later", _opening, second_half) - baseline)
        for second_half in (False, True)
    )
    return same_half > MARGIN * other_half + ROUNDING * _norm(baseline)


def _in_first_half(places: Array) -> Array:
    return (places[..., 0] < places[..., 0].max() // 2 + 1) & (places[..., 0] >= 0)


def _response(
    subject: Subject,
    change: Change,
    mask: Mask,
    second_half: bool = False,
) -> Array:
    """Return the response of the samples of a mask to a change of the scenario.

    Raises:
        Failed: its gradients ignore weights.
        Skipped: its updates without gradients ignore weights, or samples cannot be identified.
    """
    samples = subject.once(
        ("samples", change, second_half), lambda: _samples(subject, change, second_half)
    )
    return samples.response(lambda places: np.where(mask(places), 1.0, LITTLE))


def _samples(subject: Subject, change: Change, second_half: bool) -> Samples:
    scenario = Scenario("either", change=change, second_half=second_half, scale=MODEST)
    samples = Samples(subject, Probe(subject.spec, scenario, placing=True), MANY)
    if not change:
        nothing = samples.response(lambda places: np.full(places.shape[:-1], LITTLE))
        everything = samples.response(lambda places: np.ones(places.shape[:-1]))
        if _norm(nothing) > 0.1 * _norm(everything):
            if not samples.recorded:  # a search without gradients compares whole episodes
                raise Skipped("its updates do not depend on the weights of its batches")
            raise Failed(
                "some updates do not depend on the weights of their batch; use Batch.mean in every loss, so that rows "
                "without a transition and importance weights count as they should"
            )
    return samples


def _norm(response: Array) -> float:
    return float(np.linalg.norm(response))

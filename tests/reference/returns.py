"""Advantages and targets by their definitions, with loops over episodes: slow, but obviously correct.

One row of a rollout is a list of `Moment`s in order of time. After the end of a rollout, an estimator knows only the
value of the observation after its last step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """A step of one row: `obs` and `next_obs` are names of observations, `next_obs` the true successor."""

    obs: int
    reward: float
    next_obs: int
    terminated: bool
    truncated: bool
    valid: bool


def chains(moments: Sequence[Moment]) -> list[list[int]]:
    """The positions of the valid moments of each episode; the last episode may continue after the rollout."""
    found: list[list[int]] = [[]]
    for position, moment in enumerate(moments):
        if moment.valid:
            found[-1].append(position)
            if moment.terminated or moment.truncated:
                found.append([])
    return [chain for chain in found if chain]


def successor_values(moments: Sequence[Moment], chain: Sequence[int], value: Callable[[int], float]) -> list[float]:
    """V after each moment of an episode: of its next valid observation, or of the one after its last moment."""
    values = [value(moments[position].obs) for position in chain[1:]]
    last = moments[chain[-1]]
    ended = last.terminated or last.truncated
    return [*values, value(last.next_obs if ended else moments[-1].next_obs)]


def gae(moments: Sequence[Moment], value: Callable[[int], float], gamma: float, lam: float) -> dict[int, float]:
    """Schulman et al. (2016), equation 16: the sum of (gamma lam)^l delta_(t + l) to the end of the episode."""
    advantages = {}
    for chain in chains(moments):
        following = successor_values(moments, chain, value)
        deltas = [
            moments[position].reward
            + (0.0 if moments[position].terminated else gamma * after)
            - value(moments[position].obs)
            for position, after in zip(chain, following, strict=True)
        ]
        for start, position in enumerate(chain):
            advantages[position] = sum((gamma * lam) ** l * delta for l, delta in enumerate(deltas[start:]))  # noqa: E741
    return advantages


def n_step(moments: Sequence[Moment], value: Callable[[int], float], gamma: float) -> dict[int, float]:
    """The discounted rewards to the end of the episode or the rollout, and from there the discounted value."""
    returns = {}
    for chain in chains(moments):
        last = moments[chain[-1]]
        bootstrap = 0.0 if last.terminated else successor_values(moments, chain, value)[-1]
        for start, position in enumerate(chain):
            rest = [moments[later].reward for later in chain[start:]]
            returns[position] = sum(gamma**k * reward for k, reward in enumerate(rest)) + gamma ** len(rest) * bootstrap
    return returns


def lambda_return(
    moments: Sequence[Moment], value: Callable[[int], float], gamma: float, lam: float
) -> dict[int, float]:
    """Sutton and Barto (2018), equation 12.3: the mixture of n-step returns, the longest with the rest."""
    returns = {}
    for chain in chains(moments):
        following = successor_values(moments, chain, value)
        if moments[chain[-1]].terminated:
            following[-1] = 0.0
        for start, position in enumerate(chain):
            rewards = [moments[later].reward for later in chain[start:]]
            n_steps = [
                sum(gamma**k * reward for k, reward in enumerate(rewards[:n])) + gamma**n * following[start + n - 1]
                for n in range(1, len(rewards) + 1)
            ]
            mixture = sum((1 - lam) * lam**n * part for n, part in enumerate(n_steps[:-1]))
            returns[position] = mixture + lam ** (len(n_steps) - 1) * n_steps[-1]
    return returns


def vtrace(
    moments: Sequence[Moment],
    value: Callable[[int], float],
    ratio: Callable[[int], float],
    gamma: float,
    lam: float,
    clip_rho: float,
    clip_c: float,
) -> tuple[dict[int, float], dict[int, float]]:
    """Espeholt et al. (2018), equation 1 with remark 2, and the advantages of section 4.2."""
    advantages, targets = {}, {}
    for chain in chains(moments):
        following = successor_values(moments, chain, value)
        if moments[chain[-1]].terminated:
            following[-1] = 0.0
        now = [moments[position] for position in chain]
        rho = [min(clip_rho, ratio(moment.obs)) for moment in now]
        c = [lam * min(clip_c, ratio(moment.obs)) for moment in now]
        deltas = [rho[t] * (moment.reward + gamma * following[t] - value(moment.obs)) for t, moment in enumerate(now)]
        v = [
            value(moment.obs) + sum(gamma ** (t - s) * math.prod(c[s:t]) * deltas[t] for t in range(s, len(now)))
            for s, moment in enumerate(now)
        ]
        for s, position in enumerate(chain):
            after = v[s + 1] if s + 1 < len(v) else following[-1]
            targets[position] = v[s]
            advantages[position] = rho[s] * (now[s].reward + gamma * after - value(now[s].obs))
    return advantages, targets


def retrace(
    moments: Sequence[Moment],
    value: Callable[[int], float],
    chosen: Callable[[int], float],
    ratio: Callable[[int], float],
    gamma: float,
    lam: float,
) -> dict[int, float]:
    """Munos et al. (2016), equation 3: Q plus the discounted, traced errors from the step on."""
    targets = {}
    for chain in chains(moments):
        following = successor_values(moments, chain, value)
        if moments[chain[-1]].terminated:
            following[-1] = 0.0
        now = [moments[position] for position in chain]
        c = [lam * min(1.0, ratio(moment.obs)) for moment in now]
        errors = [moment.reward + gamma * following[t] - chosen(moment.obs) for t, moment in enumerate(now)]
        for s, position in enumerate(chain):
            traced = [gamma ** (t - s) * math.prod(c[s + 1 : t + 1]) * errors[t] for t in range(s, len(now))]
            targets[position] = chosen(now[s].obs) + sum(traced)
    return targets

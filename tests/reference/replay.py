"""A replay memory as lists of moments, with n-step transitions by loops over moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.reference.returns import Moment


@dataclass(frozen=True)
class Transition:
    """From `obs` over up to n rewards to `next_obs`; `discount` is 0 after a terminal state."""

    obs: int
    reward: float
    next_obs: int
    discount: float


def window(moments: Sequence[Moment], start: int, n: int, gamma: float) -> Transition | None:
    """The n-step transition that starts at `start`, or None if the moments end before it is complete.

    Absent moments count as steps, but have no reward and no discount; the next observation is that of the row's next
    valid moment, or its last one.
    """
    total, discount = 0.0, 1.0
    for moment in moments[start : start + n]:
        if moment.valid:
            total += discount * moment.reward
            discount *= gamma
            if moment.terminated or moment.truncated:
                return Transition(moments[start].obs, total, moment.next_obs, 0.0 if moment.terminated else discount)
    if start + n > len(moments):
        return None
    seen = [moment.obs for moment in moments[start + n :] if moment.valid]
    return Transition(moments[start].obs, total, seen[0] if seen else moments[-1].next_obs, discount)


def memory(moments: Sequence[Moment], capacity: int, n: int, gamma: float) -> dict[int, Transition]:
    """The transitions that a memory of a row's last `capacity` moments may return, by their first observation."""
    found = {}
    for start in range(max(0, len(moments) - capacity), len(moments)):
        transition = window(moments, start, n, gamma)
        if moments[start].valid and transition is not None:
            found[moments[start].obs] = transition
    return found

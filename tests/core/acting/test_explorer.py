"""The epsilon of each actor."""

from __future__ import annotations

import pytest

from rlplug_core.acting.explorer import actor_epsilon, epsilon_schedule
from rlplug_core.config.schedules import constant


def test_actor_epsilon_equals_the_paper() -> None:
    """Table 1 of Horgan et al. (2018): eps ** (1 + i / (N - 1) * alpha)."""
    found = [actor_epsilon(constant(0.4), rank, 8, 7.0)(0.5) for rank in range(8)]
    assert found == pytest.approx([0.4, 0.4**2, 0.4**3, 0.4**4, 0.4**5, 0.4**6, 0.4**7, 0.4**8])


def test_one_actor_or_alpha_0_uses_the_schedule() -> None:
    epsilon = epsilon_schedule(1.0, 0.1, 0.5)
    assert actor_epsilon(epsilon, 0, 1, 7.0) is epsilon
    assert actor_epsilon(epsilon, 3, 4, 0.0) is epsilon
    assert actor_epsilon(epsilon, 1, 2, 1.0)(0.25) == pytest.approx(epsilon(0.25) ** 2)

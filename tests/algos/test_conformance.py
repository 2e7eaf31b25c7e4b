"""The first-party algorithms keep the contract that everybody's do."""

from __future__ import annotations

import pytest

from rlplug_core.testing import Check, checks

NAMES = ("a2c", "a3c", "ppo", "dqn", "vqn", "vsarsa", "nstep-q")
EVERY = [pytest.param(check, id=f"{name}-{check}") for name in NAMES for check in checks(name)]


@pytest.mark.parametrize("check", EVERY)
def test_conformance(check: Check) -> None:
    check()

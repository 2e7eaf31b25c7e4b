"""For authors of plugins: the conformance kit, small environments with known answers, and distributions for tests.

A test file of four lines tests an algorithm against the contract:

    import pytest
    from rlplug_core.testing import Check, checks

    @pytest.mark.parametrize("check", checks("my-algo"), ids=str)
    def test_conformance(check: Check) -> None:
        check()

`env_checks`, `wrapper_checks`, `controller_checks`, `memory_checks`, `network_checks`, `population_checks` and
`hook_checks` do the same for the other kinds of plugins.

Importing this imports neither torch nor gymnasium nor any plugin.
"""

from __future__ import annotations

from rlplug_core.plugins.index import CONTRACT
from rlplug_core.testing.checks import (
    Check,
    ProvisionalFailure,
    checks,
    controller_checks,
    env_checks,
    hook_checks,
    memory_checks,
    network_checks,
    population_checks,
    wrapper_checks,
)
from rlplug_core.testing.kit.outcome import Outcome

__all__ = [
    "CONTRACT",
    "Check",
    "Outcome",
    "ProvisionalFailure",
    "checks",
    "controller_checks",
    "env_checks",
    "hook_checks",
    "memory_checks",
    "network_checks",
    "population_checks",
    "wrapper_checks",
]

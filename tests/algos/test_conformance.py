"""The first-party algorithms keep the contract that everybody's do."""

from __future__ import annotations

import pytest

from rlplug_core.testing import Check, checks

SMALL = {"net.hidden": [16, 16], "batch": 16}
#: One name for each class, and the one with all switches; options where the defaults take long.
NAMES: dict[str, dict[str, object]] = {
    "a2c": {}, "a3c": {}, "ppo": {}, "dqn": {}, "vqn": {}, "vsarsa": {}, "nstep-q": {}, "c51": SMALL,
    "qrdqn": {**SMALL, "quantiles": 8}, "iqn": SMALL, "rainbow": SMALL, "acer": {}, "acer-continuous": {}, "acktr": {},
    "trpo": {}, "vac": {}, "vpg": {}, "ddpg": SMALL, "td3": SMALL, "sac": SMALL,
    "tqc": SMALL, "crossq": SMALL, "sac-discrete": SMALL,
    "ppo-recurrent": {"net.hidden": [16], "units": 16, "steps": 32, "batch": 64},
}  # fmt: skip
EVERY = [
    pytest.param(check, id=f"{name}-{check}")
    for name, options in NAMES.items()
    for check in checks(name, options=options)
    # In fresh processes, seconds each, the code of dqn again but for what rainbow adds.
    if name not in ("c51", "qrdqn", "iqn") or check.name not in ("fresh-process", "import-light")
]


@pytest.mark.parametrize("check", EVERY)
def test_conformance(check: Check) -> None:
    check()

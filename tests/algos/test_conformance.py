"""The first-party algorithms keep the contract that everybody's do."""

from __future__ import annotations

import pytest

from rlplug_core.testing import Check, checks
from tests.algos.test_options import ALGORITHMS

SMALL = {"net.hidden": [16, 16], "batch_size": 16}
#: Every name, and options where the defaults take long.
NAMES: dict[str, dict[str, object]] = {
    "a2c": {}, "a3c": {}, "ppo": {"n_epochs": 3}, "dqn": {}, "vqn": {}, "vsarsa": {}, "nstep-q": {},
    "acer": {"replay_ratio": 1.0}, "acer-continuous": {"replay_ratio": 1.0}, "acktr": {}, "impala": {}, "appo": {},
    "trpo": {}, "vac": {}, "vpg": {},
    **dict.fromkeys(("apex", "ddqn", "dueling-dqn", "per-dqn", "noisy-dqn", "nstep-dqn", "c51", "iqn"), SMALL),
    **dict.fromkeys(("rainbow", "rainbow-iqn", "ddpg", "td3", "sac", "tqc", "crossq", "sac-discrete"), SMALL),
    "iql": SMALL, "cql": {**SMALL, "n_action_samples": 2},
    "qrdqn": {**SMALL, "n_quantiles": 8},
    "ppo-recurrent": {"net.hidden": [16], "recurrent_hidden_size": 16, "n_steps": 32, "batch_size": 64, "n_epochs": 3},
}  # fmt: skip
EVERY = [
    pytest.param(check, id=f"{name}-{check}")
    for name, options in NAMES.items()
    for check in checks(name, options=options)
]


def test_no_name_is_left_out() -> None:
    assert {*NAMES} == {*ALGORITHMS}


@pytest.mark.parametrize("check", EVERY)
def test_conformance(check: Check) -> None:
    check()

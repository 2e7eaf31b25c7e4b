"""Every algorithm of rlplug passes the conformance kit; the plain tests check one algorithm of each kind."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from rlplug_core.testing import Check, checks
from tests.algos.test_options import ALGORITHMS

SMALL = {"net.hidden": [16, 16], "batch_size": 16}
SHORT = {"n_steps": 32, "batch_size": 64, "n_epochs": 2}
PLAYER = "ppo:n_steps=32,batch_size=64,n_epochs=2"
#: Every name, with options if its defaults take long.
NAMES: dict[str, dict[str, object]] = {
    "a2c": {}, "a3c": {}, "ppo": SHORT, "dqn": SMALL, "vqn": {}, "pqn": SHORT, "vsarsa": {}, "nstep-q": {},
    "acer": {"replay_ratio": 1.0}, "acer-continuous": {"replay_ratio": 1.0}, "acktr": {}, "impala": {}, "appo": SHORT,
    "trpo": {"n_steps": 64, "batch_size": 64, "n_critic_updates": 2}, "vac": {}, "vpg": {"n_steps": 100},
    **dict.fromkeys(("apex", "ddqn", "dueling-dqn", "per-dqn", "noisy-dqn", "nstep-dqn", "c51", "iqn"), SMALL),
    **dict.fromkeys(("rainbow", "rainbow-iqn", "ddpg", "td3", "sac", "tqc", "sac-discrete"), SMALL),
    **{key: {**SMALL, "learning_starts": 64, "train_freq": 1, "n_atoms": 11} for key in ("fast-td3", "fast-sac")},
    "crossq": {**SMALL, "critic_net.hidden": [16]},
    "iql": SMALL, "cql": {**SMALL, "n_action_samples": 2},
    "qrdqn": {**SMALL, "n_quantiles": 8},
    "mappo": SHORT, "independent": {"agent": [f"*={PLAYER}"]}, "self-play": {"player": PLAYER},
    "r2d2": {**SMALL, "sequence_length": 6, "burn_in": 2, "recurrent_hidden_size": 8, "n_step": 3},
    "ppo-recurrent": {"net.hidden": [16], "recurrent_hidden_size": 8, "n_steps": 16, "batch_size": 64, "n_epochs": 2},
}  # fmt: skip
#: Options that change the data of agents or buffers, each with one name.
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    **{f"noisy-{name}": (name, {**NAMES[name], "noisy": "factorized"}) for name in ("a2c", "ppo", "acer", "impala")},
    "noisy-appo": ("appo", {**SHORT, "noisy": "independent"}),
    "a2c-replay": ("a2c", {"replay_ratio": 2.0}),
    "a3c-replay": ("a3c", {"replay_ratio": 1.0, "replay_only": True}),
    "impala-replay": ("impala", {"replay_ratio": 1.0}),
    "nstep-q-replay": ("nstep-q", {"replay_ratio": 2.0}),
}
CASES = {**{name: (name, options) for name, options in NAMES.items()}, **VARIANTS}
#: Names that share a class with another one: switches of DQN (`rainbow` has all), other runners, no replay.
REPEATED = (
    "a3c",
    "vac",
    "apex",
    "ddqn",
    "dueling-dqn",
    "per-dqn",
    "noisy-dqn",
    "nstep-dqn",
    "c51",
    "rainbow-iqn",
    "fast-sac",
)
#: Algorithms of a kind that another one has; references test their losses in other files: critics
#: and policies (`sac` and `td3` are checked), values (`rainbow`), rollouts (`a2c`, `ppo`), actors (`impala`), replay
#: of rollouts (`acer`), memory (`r2d2`), several agents (`mappo` and `independent`).
ALIKE = (
    *("ddpg", "tqc", "crossq", "cql", "sac-discrete", "fast-td3"),
    *("iqn", "qrdqn"),
    *("pqn", "vpg", "acktr", "ppo-recurrent"),
    *("appo", "acer-continuous", "self-play"),
)
SLOW = (*REPEATED, *ALIKE, *VARIANTS)
#: Checks that `test_resume.py` makes in the plain tests, for one case of each class.
RESUMED = ("resume", "fresh-process")


def failures(kit_checks: Iterable[Check]) -> dict[str, str]:
    """Run checks from the same random state of torch, and return the messages of those that fail or warn."""
    messages = {}
    for check in kit_checks:
        torch.manual_seed(0)
        outcome = check.outcome()
        if outcome.broken:
            messages[check.name] = outcome.message
    return messages


def test_all_names_have_options() -> None:
    assert {*NAMES} == {*ALGORITHMS}


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES])
def test_passes_all_checks(case: str) -> None:
    name, options = CASES[case]
    kit_checks = checks(name, options=options)
    assert len(kit_checks) > 30
    assert {check.name for check in kit_checks} >= {*RESUMED}
    assert not failures(check for check in kit_checks if check.name not in RESUMED)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_passes_resume_checks(case: str) -> None:
    name, options = CASES[case]
    assert not failures(check for check in checks(name, options=options) if check.name in RESUMED)

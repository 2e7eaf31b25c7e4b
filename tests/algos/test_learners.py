"""Two learners with half of an experience each learn the same as one with all of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.loop.build import build
from rlplug_core.loop.plan import Plan
from rlplug_core.loop.process_spawner import fork_server
from rlplug_core.loop.signals import restore_stop_signals
from tests.algos.halves import learn_share
from tests.algos.test_options import CLASSES, SIMPLE

CHAIN = "rlplug_core.testing.envs:Chain"
CONTINUOUS = "rlplug_core.testing.envs:Continuous"
SMALL = {"buffer_size": 400, "learning_starts": 20, "batch_size": 8}
#: Whole batches without noise that each learner would draw itself, one optimizer with autograd and one by rules.
CASES: dict[str, dict[str, Any]] = {
    "a2c": {"n_steps": 8},
    "impala": {"n_steps": 8},
    "ppo": {"n_steps": 8, "n_epochs": 2, "batch_size": 64, "normalize_advantage": False},
    "dqn": SMALL,
    "c51": SMALL,
    "qrdqn": SMALL,
    "ddpg": SMALL,
}


@pytest.mark.parametrize("name", CASES)
def test_two_learners_equal_one_with_both_batches(name: str, tmp_path: Path) -> None:
    env = CONTINUOUS if name == "ddpg" else CHAIN
    options = {"seed": 3, **CASES[name]}
    with fork_server().Pool(2, restore_stop_signals) as pool:  # its end sends them a signal
        about = (name, env, options, str(tmp_path / "learners"))
        first, second = pool.starmap(learn_share, [(0, 2, *about), (1, 2, *about)], chunksize=1)
    alone = learn_share(0, 1, name, env, options, "")
    began = Plan.make(name, env, {"num_envs": 4, **options})
    fresh: Any = began.make_learner(began.make_env(4).spec)
    for one, other, whole, before in zip(first, second, alone, fresh.optimizers, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, whole, rtol=2e-4, atol=2e-6)
        assert np.abs(whole - before.flat.numpy()).max() > 1e-4, "it has to have learned"


DECLARED = {name: CLASSES[name] for name in SIMPLE if CLASSES[name].data_parallel}


#: One of each kind of buffer and of actions; the others are `slow`.
PLAIN = ("a2c", "ppo", "dqn", "ddpg")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in PLAIN else pytest.mark.slow) for name in DECLARED]
)
def test_sound_algorithms_keep_equal_weights_on_all_learners(name: str) -> None:
    """A run with two learners saves its state only if their weights are equal."""
    cls = DECLARED[name]
    env = CHAIN if not cls.actions or "Discrete" in cls.actions else CONTINUOUS
    known = {field.name for field in fields(cls.Config)}
    own = {option: value for option, value in {"n_steps": 8, **SMALL}.items() if option in known}
    plan = Plan.make(name, env, {"runner": "sync", "learners": 2, "num_envs": 2, "total_timesteps": 800, **own})
    runner = build(plan, Clock(800))
    try:
        runner.run(lambda: None)
        assert runner.clock.updates > 2
        assert len(runner.state_dict()["workers"]["all"]) == 1
    finally:
        runner.close()


@pytest.mark.parametrize(("name", "options", "message"), [
    ("ppo", {"target_kl": 0.02}, "target_kl ends an update depending on the batch of one learner"),
    ("a2c", {"replay_ratio": 1.0}, "with replay_ratio each learner takes its own random number of steps"),
    ("ppo", {"desired_kl": 0.02}, "desired_kl changes the learning rate depending on the batch of one learner"),
    ("ppo", {"popart": True}, "popart scales values by the statistics of one learner"),
    ("trpo", {}, "trpo does not say that it is sound with several learners"),
    ("vpg", {}, "vpg does not say that it is sound with several learners"),
    ("nstep-q", {}, "add --runner sync"),
])  # fmt: skip
def test_unsound_runners_raise(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan.make(name, CHAIN, {"learners": 2, **options})

"""rlplug-imitation keeps the contract; all three learn what an expert does, and DAgger asks it about its own states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlplug_imitation.expert import Expert, ExpertConfig

from rlplug_core import Run, load, train
from rlplug_core.testing import Check, checks
from rlplug_core.testing.envs import Continuous, Recall

CONTINUOUS = "rlplug_core.testing.envs:Continuous"
QUICK = {"eval_episodes": 5, "final_eval_episodes": 200, "log_every": 200, "num_envs": 4}


SMALL = {"net.hidden": [16], "batch_size": 32}
REPLAY = {**SMALL, "learning_starts": 64}
ROLLOUT = {**SMALL, "n_steps": 16, "n_epochs": 2, "discriminator_steps": 2}


@pytest.mark.parametrize(
    "check",
    [
        *checks("bc", options=REPLAY),
        *checks("dagger", options=REPLAY),
        *checks("gail", options=ROLLOUT),
    ],
    ids=str,
)
def test_conformance(check: Check) -> None:
    check()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transitions of an expert who does x / 2, which is best: its mean return is 0, that of doing 0 is -0.08."""
    path = tmp_path_factory.mktemp("data") / "half.npz"
    obs = np.random.default_rng(0).uniform(-1, 1, (500, 1)).astype(np.float32)
    ends, none = np.ones(500, bool), np.zeros(500, bool)
    np.savez(
        path,
        observations=obs,
        actions=obs / 2,
        rewards=np.zeros(500, np.float32),
        next_observations=obs,
        terminations=ends,
        truncations=none,
    )
    return path


def trained(algorithm: str, out: Path, options: dict[str, Any]) -> Run:
    return train(algorithm, CONTINUOUS, {**QUICK, **options}, out=out, hooks=False, name=algorithm)


def test_cloning_and_its_expert_are_imitated(tmp_path: Path, data: Path) -> None:
    cloned = trained(
        "bc", tmp_path, {"dataset": str(data), "offline": True, "total_timesteps": 400}
    )
    assert cloned.evaluate(200).mean > -0.01
    own = {"wrap": [f"expert:run={cloned.path}"], "total_timesteps": 1_000, "learning_starts": 100}
    asked = trained("dagger", tmp_path, own)
    assert asked.evaluate(200).mean > -0.01
    both = train(
        "dagger", CONTINUOUS, {**QUICK, **own, "dataset": str(data)}, out=tmp_path, hooks=False
    )
    assert both.evaluate(200).mean > -0.01


def test_an_expert_with_a_memory_forgets_at_the_start_of_an_episode(tmp_path: Path) -> None:
    """Its actions are those of one policy for each row, also in a wrapper that continues from a state."""
    options = {"memory": "gru:units=4", "n_steps": 8, "batch_size": 8, "total_timesteps": 64}
    short = {"num_envs": 1, "eval_episodes": 1, "final_eval_episodes": 1}
    teacher = train(
        "ppo", "rlplug_core.testing.envs:Recall", {**options, **short}, out=tmp_path, hooks=False
    )
    one, other = (Expert(Recall(2), ExpertConfig(str(teacher.path))) for _ in range(2))
    policies = [load(teacher.path) for _ in range(2)]
    now = one.reset(3)
    for step in range(12):
        for row, policy in enumerate(policies):
            if now.is_first[row]:
                policy.reset()
        expected = [
            policy({name: part[row] for name, part in now.obs.items()})
            for row, policy in enumerate(policies)
        ]
        if step == 7:
            other.reset(4)
            other.load_state_dict(one.state_dict())
            one = other
        now = one.step(np.zeros(2, np.int64))
        assert one.info("expert_action") == expected


def test_an_adversary_is_deceived(tmp_path: Path, data: Path) -> None:
    options = {"dataset": str(data), "total_timesteps": 20_000, "n_steps": 64, "num_envs": 8}
    assert trained("gail", tmp_path, options).evaluate(200).mean > -0.03
    assert Continuous(1).spec.action.shape == (1,)

"""rlplug-imitation passes the conformance checks; BC, DAgger and GAIL imitate an expert."""

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
    """Transitions of an expert with the best action, x / 2: the best mean return is 0; the action 0 gets -0.08."""
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


def train_on_continuous(algorithm: str, out: Path, options: dict[str, Any]) -> Run:
    return train(algorithm, CONTINUOUS, {**QUICK, **options}, out=out, hooks=False, name=algorithm)


def test_bc_imitates_data_and_dagger_imitates_an_expert(tmp_path: Path, data: Path) -> None:
    cloned = train_on_continuous(
        "bc", tmp_path, {"dataset": str(data), "offline": True, "total_timesteps": 400}
    )
    assert cloned.evaluate(200).mean > -0.01
    dagger = {
        "wrap": [f"expert:run={cloned.path}"],
        "total_timesteps": 1_000,
        "learning_starts": 100,
    }
    online = train_on_continuous("dagger", tmp_path, dagger)
    assert online.evaluate(200).mean > -0.01
    both = train(
        "dagger", CONTINUOUS, {**QUICK, **dagger, "dataset": str(data)}, out=tmp_path, hooks=False
    )
    assert both.evaluate(200).mean > -0.01


def test_expert_with_memory_resets_at_the_start_of_an_episode(tmp_path: Path) -> None:
    """Its actions are those of one policy per row, also in a wrapper that resumes from a state."""
    options = {"memory": "gru:units=4", "n_steps": 8, "batch_size": 8, "total_timesteps": 64}
    short = {"num_envs": 1, "eval_episodes": 1, "final_eval_episodes": 1}
    teacher = train(
        "ppo", "rlplug_core.testing.envs:Recall", {**options, **short}, out=tmp_path, hooks=False
    )
    env, fresh = (Expert(Recall(2), ExpertConfig(str(teacher.path))) for _ in range(2))
    policies = [load(teacher.path) for _ in range(2)]
    now = env.reset(3)
    for step in range(12):
        for row, policy in enumerate(policies):
            if now.is_first[row]:
                policy.reset()
        expected = [
            policy({name: part[row] for name, part in now.obs.items()})
            for row, policy in enumerate(policies)
        ]
        if step == 7:
            fresh.reset(4)
            fresh.load_state_dict(env.state_dict())
            env = fresh
        now = env.step(np.zeros(2, np.int64))
        assert env.info("expert_action") == expected


def test_gail_imitates_data(tmp_path: Path, data: Path) -> None:
    options = {"dataset": str(data), "total_timesteps": 20_000, "n_steps": 64, "num_envs": 8}
    assert train_on_continuous("gail", tmp_path, options).evaluate(200).mean > -0.03
    assert Continuous(1).spec.action.shape == (1,)

"""rlplug-rlpd passes the conformance checks, and half of each batch comes from a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlplug_rlpd.rlpd import RLPD, RLPDConfig

from rlplug_core import Context, Seeds, UsageError, train
from rlplug_core.testing import Check, checks
from rlplug_core.testing.envs import Continuous

CONTINUOUS = "rlplug_core.testing.envs:Continuous"


SMALL = {
    "net.hidden": [16],
    "batch_size": 32,
    "learning_starts": 64,
    "random_steps": 16,
    "n_critics": 3,
    "gradient_steps": 2,
    "policy_delay": 2,
}


@pytest.mark.parametrize("check", checks("rlpd", options=SMALL), ids=str)
def test_conformance(check: Check) -> None:
    check()


def test_target_is_the_lowest_of_the_drawn_critics() -> None:
    spec = Continuous(1).spec
    learner = RLPD(spec, RLPDConfig(n_critics=4, n_targets=2), Context(Seeds(0)))
    obs, noise = torch.rand(6, 1), torch.randn(6, 1)

    class Batch:
        reward = torch.rand(6)
        discount = torch.full((6,), 0.9)
        next_obs = obs
        extras = {"members": torch.tensor([3, 1])}

    batch: Any = Batch()
    action, log_prob = learner.head.draw(learner.policy(obs), noise)
    values = learner.target_critics(obs, action)
    target = learner.soft_target(batch, noise, learner.config)
    lowest = torch.minimum(values[1], values[3]) - log_prob  # the temperature starts at 1
    assert torch.allclose(target, batch.reward + 0.9 * lowest, atol=1e-6)


def test_data_set_is_required_and_speeds_up_learning(tmp_path: Path) -> None:
    """The best action is x / 2; 64 random steps and data with random actions are enough to learn it."""
    with pytest.raises(UsageError, match=r"--dataset-share mixes .* it needs --dataset"):
        train("rlpd", CONTINUOUS, {"dataset_share": 0.5}, out=tmp_path, hooks=False)
    generator = np.random.default_rng(0)
    obs = generator.uniform(-1, 1, (2000, 1)).astype(np.float32)
    action = generator.uniform(-1, 1, (2000, 1)).astype(np.float32)
    data = tmp_path / "data.npz"
    np.savez(
        data,
        observations=obs,
        actions=action,
        rewards=-np.square(action - obs / 2)[:, 0],
        next_observations=obs,
        terminations=np.ones(2000, bool),
        truncations=np.zeros(2000, bool),
    )
    options = {
        "dataset": str(data),
        "dataset_share": 0.5,
        "total_timesteps": 300,
        "learning_starts": 64,
        "random_steps": 64,
        "net.hidden": [32],
        "n_critics": 2,
        "learning_rate": 3e-3,
        "critic_learning_rate": 3e-3,
        "ent_coef": 0.01,
        "eval_episodes": 5,
        "final_eval_episodes": 5,
    }
    run = train("rlpd", CONTINUOUS, options, out=tmp_path, hooks=False)
    assert run.evaluate(200, checkpoint="final").mean > -0.03

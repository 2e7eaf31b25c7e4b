"""rlplug-marl passes the conformance checks; QMIX solves a world that VDN cannot solve."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlplug_marl.mixers import Monotonic, Sum
from rlplug_marl.team import QMIX, QMIXConfig

import rlplug_core as rl
from rlplug_core.testing import Check, checks

TWO_STEP = "rlplug_marl.worlds:TwoStep"
CLIMB = "rlplug_marl.worlds:Climb"
SMALL = {"net.hidden": [16], "batch_size": 16, "learning_starts": 40, "target_update_interval": 3}
SPEC = rl.Spec(
    spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(2), 4, "World", agents=("a", "b") * 2
)


QMIX_CHECKS = checks("qmix", options=SMALL, env=TWO_STEP)
VDN_CHECKS = checks("vdn", options={**SMALL, "separate": False})


@pytest.mark.parametrize("check", [*QMIX_CHECKS, *VDN_CHECKS], ids=str)
def test_conformance(check: Check) -> None:
    check()


def test_mixers_are_monotonic_and_ignore_absent_agents() -> None:
    torch.manual_seed(0)
    obs = {"agents": torch.rand(5, 2, 3), "present": torch.tensor([[1.0, 0.0]] * 4 + [[1.0, 1.0]])}
    for mixer in (Sum(), Monotonic(SPEC, 8)):
        values = torch.randn(5, 2, requires_grad=True)
        mixer(values, obs).sum().backward()
        assert values.grad is not None
        assert (values.grad[:, 0] > 0).all()
        assert (values.grad[:4, 1] == 0).all()
        assert values.grad[4, 1] > 0


def test_target_is_the_mixed_value_of_the_best_next_actions() -> None:
    learner = QMIX(SPEC, QMIXConfig(net=rl.Net(hidden=(8,))), rl.Context(rl.Seeds(0)))
    for parameter in learner.target_network.parameters():
        parameter.data.add_(torch.randn_like(parameter))
    obs = {"agents": torch.rand(6, 2, 3), "present": torch.ones(6, 2)}
    ones = torch.ones(6)
    batch = rl.Transitions(
        ones, None, obs, torch.zeros(6, 2, dtype=torch.long), ones, 0.9 * ones, obs, ones.long(), {}
    )
    expected = []
    for row in range(6):
        values = []
        for agent in range(2):
            own = obs["agents"][row : row + 1, agent]
            best = learner.q_network.networks[agent](own).argmax()
            values.append(learner.target_network.networks[agent](own)[0, best])
        row_obs = {name: part[row : row + 1] for name, part in obs.items()}
        expected.append(learner.target_mixer(torch.stack(values)[None], row_obs)[0])
    found = learner.next_value(batch, learner.config)
    assert torch.allclose(found, torch.stack(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "env", "total"),
    [("qmix", TWO_STEP, 8.0), ("vdn", TWO_STEP, 7.0), ("qmix", CLIMB, 10.0)],
)
def test_qmix_solves_a_world_that_vdn_cannot_solve(
    algorithm: str, env: str, total: float, tmp_path: Path
) -> None:
    options = {"total_timesteps": 6_000, "learning_rate": 2e-3, "eval_episodes": 1}
    run = rl.train(algorithm, env, options, out=tmp_path, hooks=False)
    assert run.evaluate(1, checkpoint="final").mean == total

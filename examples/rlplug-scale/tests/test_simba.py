"""SimBa equals a slow reference, critics give it the action, and `simba-sac` passes the conformance checks."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from rlplug_scale.many_updates import SimbaSAC, SimbaSACConfig
from rlplug_scale.simba import Simba, SimbaConfig, simba

import rlplug_core as rl
from rlplug_core.testing import Check, checks, network_checks

SPEC = rl.Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32), 1, "World")
SMALL = {
    "net.factory": "simba:width=8",
    "critic_net.factory": "simba:width=8,blocks=2",
    "batch_size": 16,
    "learning_starts": 64,
    "random_steps": 16,
}


CHECKS = [*network_checks("simba:width=8,blocks=2"), *checks("simba-sac", options=SMALL)]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_conformance(check: Check) -> None:
    check()


def slow_norm(values: list[float], state: dict[str, Any], name: str) -> list[float]:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    scale = state[f"{name}.weight"].tolist()
    shift = state[f"{name}.bias"].tolist()
    return [
        (value - mean) / (variance + 1e-5) ** 0.5 * a + b
        for value, a, b in zip(values, scale, shift, strict=True)
    ]


def slow_linear(values: list[float], state: dict[str, Any], name: str) -> list[float]:
    rows = state[f"{name}.weight"].tolist()
    shifts = state[f"{name}.bias"].tolist()
    return [
        sum(a * b for a, b in zip(row, values, strict=True)) + shift
        for row, shift in zip(rows, shifts, strict=True)
    ]


def slow_features(network: Simba, values: list[float]) -> list[float]:
    """Return the features of one row, number by number."""
    state = network.state_dict()
    features = slow_linear(values, state, "embedding")
    for number in range(len(network.blocks)):
        block = f"blocks.{number}"
        hidden = slow_linear(slow_norm(features, state, f"{block}.norm"), state, f"{block}.hidden")
        residual = slow_linear([max(value, 0) for value in hidden], state, f"{block}.output")
        features = [value + change for value, change in zip(features, residual, strict=True)]
    return slow_norm(features, state, "norm")


def test_features_equal_a_slow_reference() -> None:
    torch.manual_seed(0)
    network, features = simba(spaces.Box(-1, 1, (3,)), rl.Net(), SimbaConfig(width=4, blocks=2))
    assert features == 4
    for parameter in network.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    obs = torch.randn(5, 3)
    expected = [slow_features(network, row.tolist()) for row in obs]  # type: ignore[arg-type]
    torch.testing.assert_close(network(obs), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_critic_reads_the_action_and_the_normalized_observation() -> None:
    torch.manual_seed(0)
    config = SimbaSACConfig(net=rl.Net(hidden=(), factory="simba:width=4", normalize_obs=True))
    learner = SimbaSAC(SPEC, config, rl.Context(rl.Seeds(0)))
    norm = learner.critics[0].vectors.norm
    assert norm is learner.policy.encoder.norm  # one running normalization for policy and critics
    norm.norm.shift.fill_(0.5)
    norm.norm.scale.fill_(2.0)
    critic = learner.critics[0]
    obs, action = torch.rand(2, 3), torch.rand(2, 2)
    (network,) = (module for module in critic.modules() if isinstance(module, Simba))
    rows = torch.cat([action, (obs - 0.5) * 2], 1)  # a Dict's keys are sorted
    expected = torch.tensor([slow_features(network, row.tolist()) for row in rows])
    found = critic(obs, action)
    torch.testing.assert_close(found, critic.output(expected).squeeze(-1), rtol=1e-4, atol=1e-5)


def test_images_raise() -> None:
    with pytest.raises(ValueError, match="simba takes vectors"):
        simba(spaces.Box(0, 255, (8, 8, 3), np.uint8), rl.Net(), SimbaConfig())

"""Plans in a known world: exact returns, and better actions than the policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlplug_core.acting.planning import Planner, plan_returns
from rlplug_core.nets.heads import SquashedGaussian


class Known(nn.Module):
    """The latent (x, y) becomes (x / 2, y), the reward is x - (a - y)², and episodes end with probability `ends`."""

    def __init__(self, policy: float, ends: float = 0.0) -> None:
        super().__init__()
        self.head = SquashedGaussian((1,))
        self.policy = nn.Parameter(torch.tensor(policy))
        self.ends = ends

    def encode(self, obs: Any) -> Tensor:
        return torch.as_tensor(obs)

    def best(self, latent: Tensor) -> Tensor:
        return self.policy.expand(len(latent), 1)

    def step(self, latent: Tensor, action: Tensor) -> Tensor:
        return latent * torch.tensor([0.5, 1.0])

    def reward_and_continuation(self, latent: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        reward = latent[:, 0] - (action[:, 0] - latent[:, 1]).square()
        return reward, torch.full_like(reward, 1 - self.ends)

    def value(self, latent: Tensor) -> Tensor:
        return latent[:, 0] / 0.55


@pytest.mark.parametrize("ends", [0.0, 1.0])
def test_plan_returns_are_exact(ends: float) -> None:
    start = torch.tensor([[0.8, 0.5], [0.2, -0.7]])
    plan = torch.tensor([[0.5, 0.1, 0.5], [0.0, -0.7, -0.7]]).unsqueeze(2)
    lost = torch.tensor([0.9 * 0.4**2, 0.7**2])
    expected = start[:, 0] / 0.55 - lost if not ends else start[:, 0] - torch.tensor([0, 0.7**2])
    assert torch.allclose(plan_returns(Known(0.0, ends), start, plan, 0.9), expected, atol=1e-5)


def test_planner_improves_the_policy() -> None:
    start = torch.tensor([[0.8, 0.5], [0.2, -0.7]])
    with torch.no_grad():
        assert Planner(Known(0.3), 0, 3, 0.9)(start).tolist() == [[pytest.approx(0.3)]] * 2
        plan = Planner(Known(0.0), 256, 3, 0.9)(start)
    assert torch.allclose(plan, start[:, 1:], atol=0.15)

"""The loss of distributional critics against explicit sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from rlplug_core.batches import Transitions
from rlplug_core.learning.losses import categorical_critic_loss
from rlplug_core.learning.targets import target_network
from rlplug_core.nets.categorical_critics import CategoricalCritics, action_critics, check_atoms
from rlplug_core.nets.continuous import ActionCritic, ActionCritics
from rlplug_core.nets.net import Net
from rlplug_core.types import Spec
from tests.reference.distributional import projection

ROWS, ATOMS = 5, 7
SPEC = Spec(Box(-1, 1, (3,)), Box(-1, 1, (2,)), 1, "Test-v0")


def critics() -> CategoricalCritics:
    torch.manual_seed(1)
    online = action_critics(lambda: ActionCritic(SPEC, Net(hidden=(8,)), atoms=ATOMS), 2, None, (-2.0, 4.0))
    assert isinstance(online, CategoricalCritics)
    with torch.no_grad():
        for parameter in online.parameters():
            parameter.mul_(3)
    return online


def make_batch() -> Transitions:
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    discount = torch.tensor([0.9, 0.0, 0.5, 0.9, 0.99])
    weight = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0])
    rows = {"obs": draw(ROWS, 3), "action": draw(ROWS, 2), "next_obs": draw(ROWS, 3), "reward": draw(ROWS)}
    return Transitions(weight, None, **rows, discount=discount, index=torch.arange(ROWS), extras={})


def test_loss_is_the_cross_entropy_with_the_projected_lower_critic() -> None:
    online = critics()
    target = target_network(online)
    batch = make_batch()
    next_action = torch.linspace(-1, 1, 2 * ROWS).view(ROWS, 2)
    loss, metrics = categorical_critic_loss(online, target, batch, next_action, batch.reward)
    support = online.support.tolist()
    after = target(batch.next_obs, next_action).softmax(-1).tolist()
    now = online(batch.obs, batch.action).softmax(-1).tolist()
    total = 0.0
    lower = set()
    means = []
    for row in range(ROWS):
        mean = [sum(p * z for p, z in zip(after[each][row], support, strict=True)) for each in range(2)]
        lowest = int(np.argmin(mean))
        lower.add(lowest)
        projected = projection(after[lowest][row], float(batch.reward[row]), float(batch.discount[row]), support)
        for each in range(2):
            entropy = -sum(p * math.log(q) for p, q in zip(projected, now[each][row], strict=True))
            total += float(batch.weight[row]) * entropy / 4
        means.append(sum(p * z for each in now for p, z in zip(each[row], support, strict=True)) / 2)
    assert lower == {0, 1}
    assert float(loss.detach()) == pytest.approx(total, rel=1e-5)
    assert float(metrics["loss/q_mean"]) == pytest.approx(float(np.dot(batch.weight.numpy(), means)) / 4, rel=1e-4)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in online.parameters())
    lowest_values = online.means(online(batch.obs, batch.action)).amin(0)
    assert torch.equal(online.lowest(batch.obs, batch.action), lowest_values)


def test_action_critics_without_bounds_return_scalars() -> None:
    assert type(action_critics(lambda: ActionCritic(SPEC, Net(hidden=(8,))), 2, None, None)) is ActionCritics
    with pytest.raises(ValueError, match="v_min must be below v_max, and 3 is not below 3"):
        check_atoms(3, 3)

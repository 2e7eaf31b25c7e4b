"""Networks by name: their options, and networks that take observation and action together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import rlplug_core as rl
from rlplug_core.errors import BadConfig
from rlplug_core.nets.custom import custom

SPEC = rl.Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32), 1, "World")


@dataclass(frozen=True)
class SumConfig(rl.Config):
    width: rl.Count = 4  # number of equal features


class Sums(nn.Module):
    """The sum of all numbers, `width` times."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, obs: Any) -> Tensor:
        parts = obs.values() if isinstance(obs, dict) else [obs]
        total: Tensor = torch.stack([part.float().sum(1) for part in parts]).sum(0)
        return total[:, None].repeat(1, self.width)


class MakeSums:
    Config = SumConfig
    takes_actions = True

    def __call__(self, space: Any, net: rl.Net, config: SumConfig) -> tuple[nn.Module, int]:
        self.space = space
        return Sums(config.width), config.width


class MakeSumsOfObservations(MakeSums):
    takes_actions = False


sums, sums_of_observations = MakeSums(), MakeSumsOfObservations()


def test_network_takes_options() -> None:
    module, features = custom(SPEC.obs, rl.Net(factory=f"{__name__}:sums:width=7"))
    assert (features, module(torch.ones(2, 3)).tolist()) == (7, [[3.0] * 7] * 2)
    with pytest.raises(BadConfig, match="has no option 'widht'; did you mean 'width'"):
        custom(SPEC.obs, rl.Net(factory=f"{__name__}:sums:widht=7"))


def test_critic_passes_observation_and_action_to_networks_that_take_both() -> None:
    critic = rl.ActionCritic(SPEC, rl.Net(hidden=(), factory=f"{__name__}:sums"))
    obs, action = torch.rand(5, 3), torch.rand(5, 2)
    total = obs.sum(1) + action.sum(1)
    expected = critic.output(total[:, None].repeat(1, 4)).squeeze(1)
    torch.testing.assert_close(critic(obs, action), expected)
    assert sums.space == spaces.Dict({"obs": SPEC.obs, "action": SPEC.action})


def test_critic_passes_only_the_observation_to_other_networks() -> None:
    critic = rl.ActionCritic(SPEC, rl.Net(hidden=(), factory=f"{__name__}:sums_of_observations"))
    assert sums_of_observations.space == SPEC.obs
    assert critic.output.in_features == 4 + 2

"""Networks use the parameters of `functional_call`, which ensembles and second-order methods need."""

from __future__ import annotations

import copy

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.nets.net import Net
from rlplug_core.nets.policies import Critic, PolicyNetwork
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.types import Spec

SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 1, "Any-v0")
OBS = torch.ones(4, 3)


@pytest.mark.parametrize("make", [PolicyNetwork, Critic, QNetwork])
def test_functional_call_uses_given_parameters(make: type[nn.Module]) -> None:
    network, other = make(SPEC, Net()), make(SPEC, Net())
    swapped = torch.func.functional_call(network, dict(other.named_parameters()), (OBS,))
    torch.testing.assert_close(swapped, other(OBS))
    assert not torch.equal(network(OBS), other(OBS))


def test_deep_copy_has_its_own_parameters() -> None:
    critic = Critic(SPEC, Net())
    copied = copy.deepcopy(critic)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.zero_()
    assert not copied(OBS).any()
    assert critic(OBS).any()

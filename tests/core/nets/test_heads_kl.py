"""The divergence between two policies' distributions is the textbook's."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch.distributions import Categorical, Normal, kl_divergence

from rlplug_core.nets.heads import ILLEGAL, head


def test_categorical() -> None:
    one, other = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    wanted = kl_divergence(Categorical(logits=one), Categorical(logits=other))
    torch.testing.assert_close(head(spaces.Discrete(3), 4)[0].kl(one, other), wanted)


def test_an_illegal_action_counts_for_nothing() -> None:
    one, other = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    wanted = kl_divergence(Categorical(logits=one[:, :2]), Categorical(logits=other[:, :2]))
    one[:, 2] = other[:, 2] = ILLEGAL
    torch.testing.assert_close(head(spaces.Discrete(3), 4)[0].kl(one, other), wanted)


def test_gaussian() -> None:
    one, other = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    normals = [Normal(outputs[:, :3], outputs[:, 3:].exp()) for outputs in (one, other)]
    torch.testing.assert_close(
        head(spaces.Box(-1, 1, (3,)), 4)[0].kl(one, other), kl_divergence(normals[0], normals[1]).sum(-1)
    )

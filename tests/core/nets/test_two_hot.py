"""Two-hot numbers: cross-entropy with the two neighboring atoms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlplug_core.nets.two_hot import TwoHot


def test_minimum_of_the_loss_is_the_number() -> None:
    numbers = TwoHot(101)
    wanted = torch.tensor([-150.0, -1.0, 0.0, 0.3, 16.0])
    outputs = torch.zeros(5, 101, requires_grad=True)
    optimizer = torch.optim.Adam([outputs], 1.0)
    for _ in range(60):
        optimizer.zero_grad()
        numbers.loss(outputs, wanted).sum().backward()
        optimizer.step()
    assert torch.allclose(numbers(outputs.detach()), wanted, rtol=0.02, atol=0.02)


def test_loss_is_the_cross_entropy_with_two_atoms_or_a_squared_error() -> None:
    outputs = torch.randn(2, 21)
    log_probs = outputs.log_softmax(-1)
    place = (np.log(1 + 5.0) + 10) / 20 * 20
    low = int(place)
    share = place - low
    expected = -((1 - share) * log_probs[0, low] + share * log_probs[0, low + 1])
    beyond = -log_probs[1, -1]  # a larger number than the last atom
    found = TwoHot(21).loss(outputs, torch.tensor([5.0, 1e9]))
    assert found.tolist() == pytest.approx([float(expected), float(beyond)], rel=1e-5)
    assert TwoHot(1).loss(torch.tensor([[3.0]]), torch.tensor([5.0])).tolist() == [4.0]

"""Batch renormalization against the paper's algorithm, and rows of weight 0."""

from __future__ import annotations

import math

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_core.nets.continuous import Ensemble
from rlplug_core.nets.net import Net
from rlplug_core.nets.renorm import BatchRenorm, Moments, RenormCritic, RenormPolicy, update_moments
from rlplug_core.types import Spec

BOX = spaces.Box(-1, 1, (3,), np.float32)
SPEC = Spec(BOX, BOX, 1, "here")


def make_norm(warmup: int, updates: int) -> BatchRenorm:
    norm = BatchRenorm(4, warmup)
    with torch.no_grad():
        norm.scale.copy_(torch.rand(4) + 0.5)
        norm.shift.copy_(torch.randn(4))
        norm.mean.copy_(torch.tensor([0.0, 0.0, 50.0, 0.1]))
        norm.variance.copy_(torch.tensor([1.0, 1e-4, 1.0, 9.0]))
        norm.updates.fill_(updates)
    return norm


def reference(norm: BatchRenorm, values: Tensor, weight: Tensor) -> Tensor:
    """Compute Algorithm 1 of the paper number by number."""
    out = torch.zeros_like(values)
    rows = [i for i in range(len(values)) if weight[i] > 0]
    for f in range(values.shape[1]):
        column = [float(values[i, f]) for i in rows]
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / len(column) + norm.epsilon)
        running = math.sqrt(float(norm.variance[f]) + norm.epsilon)
        r = max(1 / 3, min(3.0, deviation / running))
        d = max(-5.0, min(5.0, (mean - float(norm.mean[f])) / running))
        if norm.updates < norm.warmup:
            r, d = 1.0, 0.0
        for i in range(len(values)):
            scaled = (float(values[i, f]) - mean) / deviation * r + d
            out[i, f] = scaled * norm.scale[f].detach() + norm.shift[f].detach()
    return out


@pytest.mark.parametrize("updates", [9, 10])
def test_norm_equals_the_paper(updates: int) -> None:
    """Before and after the warm-up; some features reach the limits of r and d."""
    norm = make_norm(10, updates)
    values = torch.randn(16, 4) * torch.tensor([0.1, 1.0, 1.0, 3.0])
    weight = torch.tensor([1.0, 0.0, 0.5, 2.0] * 4)
    torch.testing.assert_close(norm(values, weight).detach(), reference(norm, values, weight), rtol=1e-4, atol=1e-4)


def test_gradient_flows_through_batch_moments_but_not_r_and_d() -> None:
    """During the warm-up it is the gradient of batch normalization, later that times r."""
    values = torch.randn(16, 4, requires_grad=True)
    found = []
    for updates in (0, 10):
        norm = make_norm(10, updates)
        with torch.no_grad():
            norm.scale.fill_(1.0)
        (gradient,) = torch.autograd.grad((norm(values, torch.ones(16)) ** 3)[:, 0].sum(), values)
        found.append(gradient[:, 0])
        assert float(gradient[:, 0].sum()) == pytest.approx(0, abs=1e-3)  # a shift of all rows changes nothing
    assert not torch.allclose(*found)
    plain = torch.nn.functional.batch_norm(values, None, None, training=True, eps=1e-3)
    torch.testing.assert_close(BatchRenorm(4, 1)(values, torch.ones(16)), plain, rtol=1e-4, atol=1e-5)


def test_norm_without_weights_uses_running_moments() -> None:
    norm = make_norm(0, 0)
    values = torch.randn(5, 4)
    wanted = (values - norm.mean) / (norm.variance + norm.epsilon).sqrt() * norm.scale + norm.shift
    torch.testing.assert_close(norm(values), wanted)
    torch.testing.assert_close(norm(values[:1]), wanted[:1])


def test_only_update_moments_changes_moments() -> None:
    """It updates each layer of each critic in place."""
    torch.manual_seed(0)
    critics = Ensemble(lambda: RenormCritic(SPEC, Net(hidden=(8,)), 0), 2)
    obs = torch.randn(64, 3) + 4
    action = torch.rand(64, 3)
    moments = Moments()
    before = {name: buffer.clone() for name, buffer in critics.named_buffers()}
    critics(obs, action, torch.ones(64), moments)
    assert all(torch.equal(buffer, before[name]) for name, buffer in critics.named_buffers())
    pointers = [buffer.data_ptr() for buffer in critics.buffers()]
    update_moments(critics, moments)
    assert [buffer.data_ptr() for buffer in critics.buffers()] == pointers
    for critic in critics.members:
        norm = critic.layers.norms[0]
        seen = torch.cat([action, obs], 1)  # parts of a dictionary are sorted by name
        torch.testing.assert_close(norm.mean, 0.01 * seen.mean(0))
        torch.testing.assert_close(norm.variance, 0.99 + 0.01 * seen.var(0, unbiased=False))
        assert float(critic.layers.norms[1].updates) == 1
    assert not torch.equal(critics[0].layers.norms[1].mean, critics[1].layers.norms[1].mean)


def test_moments_ignore_rows_of_weight_0() -> None:
    torch.manual_seed(0)
    policy = RenormPolicy(SPEC, Net(hidden=(8,)), 0)
    obs = torch.randn(6, 3)
    weight = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.3])
    garbage = obs.clone()
    garbage[weight == 0] = 100.0
    valid = weight > 0
    wanted = policy(obs[valid], weight[valid])
    torch.testing.assert_close(policy(obs, weight)[valid], wanted, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(policy(garbage, weight)[valid], wanted, rtol=1e-4, atol=1e-6)

"""Kernels of a gradient step equal torch's optimizers, and norm and clipping equal torch's functions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.fast import kernels
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import Adam, AdamW

STEPS = 12


def gradients(size: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(size, generator=generator) for _ in range(STEPS)]


@pytest.mark.parametrize("size", [1, 7, 4097])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(eps=1e-5), lambda p: torch.optim.Adam([p], lr=1e-2, eps=1e-5, fused=True)),
        (Adam((0.5, 0.9), weight_decay=0.1), lambda p: torch.optim.Adam([p], 1e-2, (0.5, 0.9), 1e-5, 0.1, fused=True)),
        (AdamW(), lambda p: torch.optim.AdamW([p], lr=1e-2, eps=1e-5, fused=True)),
    ],
)
def test_kernel_gives_the_bits_of_torch_optimizers(
    ours: Adam, theirs: object, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is not public in torch: a release that changes it fails here. It does not count steps."""
    monkeypatch.setattr(kernels, "loop_module", lambda name: None)
    parameters = torch.ones(size)
    reference = nn.Parameter(torch.ones(size))
    state = ours.start(parameters)
    optimizer = theirs(reference)  # type: ignore[operator]
    for gradient in gradients(size):
        ours.step(parameters, gradient, state, 1e-2)
        reference.grad = gradient
        optimizer.step()
    torch.testing.assert_close(parameters, reference.detach(), rtol=0, atol=0)
    assert state["steps"] == STEPS


class RecordingRule:
    """A rule that only records the gradient."""

    def start(self, parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        return {}

    def step(self, parameters: torch.Tensor, gradient: torch.Tensor, state: dict[str, torch.Tensor], lr: float) -> None:
        self.gradient = gradient.clone()


@pytest.mark.parametrize("clip", [None, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norm_and_clipping_equal_torch(clip: float | None, dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    net = nn.Linear(9, 4).to(dtype)
    data = torch.randn(6, 9).to(dtype)
    rule = RecordingRule()
    optimizer = Optimizer(net.parameters(), name="a", rule=rule, learning_rate=constant(1.0), max_grad_norm=clip)
    net(data).square().sum().backward()
    wanted = optimizer.gradient.clone()
    total = torch.linalg.vector_norm(wanted)
    optimizer.gradient.zero_()
    norm = optimizer.minimize(net(data).square().sum(), Clock(1))
    if clip is not None:
        wanted *= (clip / (total + 1e-6)).clamp(max=1.0)
    torch.testing.assert_close(rule.gradient, wanted)
    torch.testing.assert_close(norm, total)

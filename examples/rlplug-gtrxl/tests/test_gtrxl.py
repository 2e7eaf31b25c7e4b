"""The transformer computes a rollout like single steps; a policy with it passes the conformance checks."""

from __future__ import annotations

import pytest
import torch
from rlplug_gtrxl.memory import GTrXL, GTrXLConfig

import rlplug_core as rl
from rlplug_core.testing import Check, checks

STEPS = 11
ROWS = 3
#: Options of a small policy.
OPTIONS = {
    "memory": "gtrxl:units=8,heads=2,window=4",
    "net.hidden": [8],
    "n_steps": 16,
    "batch_size": 64,
}


@pytest.mark.parametrize("check", checks("ppo", options=OPTIONS), ids=str)
def test_conformance(check: Check) -> None:
    check()


@pytest.mark.parametrize("window", [1, 3, 20])
def test_rollout_equals_single_steps(window: int) -> None:
    """Also its gradients and the next step, from the middle of an episode and across starts."""
    memory, features, first, before = make_memory(window)
    fast = memory.unroll(features, first, before)
    slow = rl.Memory.unroll(memory, features, first, before)
    torch.testing.assert_close(fast["h"], slow["h"])
    torch.testing.assert_close(fast["held"], slow["held"])
    weights = [parameter for parameter in memory.parameters() if parameter.requires_grad]
    ours, theirs = (
        torch.autograd.grad(states["h"].square().sum(), weights, retain_graph=True)
        for states in (fast, slow)
    )
    for fast_gradient, slow_gradient in zip(ours, theirs, strict=True):
        torch.testing.assert_close(fast_gradient, slow_gradient, rtol=1e-3, atol=1e-4)
    following = [
        memory.step(torch.ones(ROWS, 4), {name: part[-ROWS:] for name, part in states.items()})
        for states in (fast, slow)
    ]
    torch.testing.assert_close(following[0]["h"], following[1]["h"])


def test_invalid_steps_do_not_change_the_window() -> None:
    memory, features, first, before = make_memory(3)
    valid = torch.rand(STEPS * ROWS) < 0.7
    valid[-ROWS:] = False
    after = memory.unroll(features, first & valid, before, valid)
    other = memory.unroll(
        torch.where(valid.unsqueeze(1), features, 9.0), first & valid, before, valid
    )
    for part in after:
        assert torch.equal(after[part], other[part])


def test_output_depends_only_on_the_window() -> None:
    """With one layer and a window of 2, the last step depends only on itself and the two steps before it."""
    memory = GTrXL(4, GTrXLConfig(units=8, heads=2, layers=1, window=2))
    features = torch.randn(6, 4, requires_grad=True)
    before = {name: torch.from_numpy(part) for name, part in memory.initial(1).items()}
    after = memory.unroll(features, torch.zeros(6, dtype=torch.bool), before)
    (gradient,) = torch.autograd.grad(after["h"][-1].sum(), [features])
    assert gradient[:3].abs().sum() == 0
    assert (gradient[3:].abs().sum(1) > 0).all()


def test_exported_step_equals_the_step() -> None:
    """The window is an input and an output of the exported program."""
    memory, _, _, before = make_memory(3)
    with torch.no_grad():
        now = torch.randn(ROWS, 4)
        exported = torch.export.export(Step(memory), (now, before), strict=False).module()
        expected = memory.step(now, before)
        for name, part in exported(now, before).items():
            torch.testing.assert_close(part, expected[name])


class Step(torch.nn.Module):
    """One step as a module, which can be exported."""

    def __init__(self, memory: GTrXL) -> None:
        super().__init__()
        self.memory = memory

    def forward(
        self, features: torch.Tensor, before: dict[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        return self.memory.step(features, before)


def make_memory(window: int) -> tuple[GTrXL, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """A memory with large weights, features and starts of steps, and the state after five earlier steps."""
    torch.manual_seed(0)
    memory = GTrXL(4, GTrXLConfig(units=8, heads=2, window=window))
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    state = {name: torch.from_numpy(part) for name, part in memory.initial(ROWS).items()}
    with torch.no_grad():
        earlier = memory.unroll(
            torch.randn(5 * ROWS, 4), torch.zeros(5 * ROWS, dtype=torch.bool), state
        )
    before = {name: part[-ROWS:] for name, part in earlier.items()}
    return memory, torch.randn(STEPS * ROWS, 4), torch.rand(STEPS * ROWS) < 0.2, before

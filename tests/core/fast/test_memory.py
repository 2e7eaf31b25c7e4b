"""Compiled loops over sequences: values and gradients equal those of torch's recurrent cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlplug_core.fast import memory as fast_memory
from rlplug_core.nets.recurrent import CELLS, Cell, CellConfig, step_by_step
from tests.conftest import loops_by

CELL = st.sampled_from(["gru", "lstm"])
pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture(autouse=True, scope="module")
def _numba() -> Iterator[None]:
    """Let numba compile."""
    with loops_by("numba"):
        yield


def case(cell: str, steps: int, rows: int, size: int, units: int, absent: bool) -> tuple[Cell, list[Any]]:
    """Make a memory and the arguments of its `unroll`."""
    memory = CELLS[cell](size, CellConfig(units))
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.normal_()
    before = [torch.randn(rows, units).requires_grad_() for _ in memory.parts]
    features = torch.randn(steps * rows, size).requires_grad_()
    valid = torch.rand(steps * rows) < 0.7 if absent else None
    return memory, [features, torch.rand(steps * rows) < 0.3, before, valid]


def unroll_in_torch(memory: Cell, arguments: list[Any]) -> tuple[Tensor, ...]:
    return step_by_step(memory._step, *arguments)


def assert_near(ours: Any, theirs: Any) -> None:
    """Compare tensors up to the rounding of their largest numbers."""
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * (1 + float(expected.detach().abs().max())))


@given(CELL, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_along_equals_torch_cells(cell: str, steps: int, rows: int, size: int, units: int, absent: bool) -> None:
    """All parts at each step, and gradients of weights, features and initial states."""
    memory, arguments = case(cell, steps, rows, size, units, absent)
    assert fast_memory.fits(memory.cell, arguments[0])
    outputs = fast_memory.unroll_cell(memory.cell, *arguments)
    expected = unroll_in_torch(memory, arguments)
    assert_near(outputs, expected)
    inputs = [*memory.parameters(), arguments[0], *arguments[2]]
    above = [torch.randn_like(part) for part in expected]
    assert_near(torch.autograd.grad(outputs, inputs, above), torch.autograd.grad(expected, inputs, above))


def test_gradients_of_single_parts_equal_torch(cell: str) -> None:
    memory, (features, first, before, valid) = case(cell, 5, 2, 3, 4, absent=True)
    arguments = [features.detach(), first, [part.detach() for part in before], valid]
    weights = list(memory.parameters())
    for part in range(len(memory.parts)):
        loss = fast_memory.unroll_cell(memory.cell, *arguments)[part].sum()
        expected = unroll_in_torch(memory, arguments)[part].sum()
        assert_near(torch.autograd.grad(loss, weights), torch.autograd.grad(expected, weights))


def test_second_derivatives_equal_torch(cell: str) -> None:
    memory, arguments = case(cell, 3, 2, 2, 3, absent=True)
    weights = list(memory.parameters())
    second = []
    for outputs in (fast_memory.unroll_cell(memory.cell, *arguments), unroll_in_torch(memory, arguments)):
        gradients = torch.autograd.grad(outputs[0].square().sum(), weights, create_graph=True)
        total = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
        second.append(torch.autograd.grad(total, [arguments[0], *arguments[2], *weights]))
    assert_near(*second)


def test_long_sequences_equal_torch_up_to_rounding(cell: str) -> None:
    memory, (features, first, before, valid) = case(cell, 32, 8, 6, 16, absent=True)
    state = memory.unroll(features, first, dict(zip(memory.parts, before, strict=True)), valid)["h"]
    expected = unroll_in_torch(memory, [features, first, before, valid])[0]
    torch.testing.assert_close(state, expected, rtol=1e-4, atol=1e-5)
    above = torch.randn_like(expected)
    inputs = [*memory.parameters(), features]
    gradients = (torch.autograd.grad(outputs, inputs, above) for outputs in (state, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))


def test_torch_computes_steps_without_numba(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, (features, first, before, valid) = case(cell, 4, 3, 2, 3, absent=True)
    state = dict(zip(memory.parts, before, strict=True))
    compiled = memory.unroll(features, first, state, valid)
    monkeypatch.setattr(fast_memory, "loop_module", lambda name: None)
    plain = memory.unroll(features, first, state, valid)
    assert type(plain["h"].grad_fn) is not type(compiled["h"].grad_fn)
    assert_near(compiled.values(), plain.values())


def test_backward_after_a_change_of_weights_raises(cell: str) -> None:
    memory, arguments = case(cell, 3, 2, 2, 3, absent=False)
    loss = fast_memory.unroll_cell(memory.cell, *arguments)[0].sum()
    with torch.no_grad():
        memory.cell.weight_hh.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooked_or_other_cells_use_torch(cell: str) -> None:
    memory, arguments = case(cell, 3, 2, 2, 3, absent=False)
    assert fast_memory.fits(memory.cell, arguments[0])
    assert not fast_memory.fits(memory.cell, arguments[0].double())
    assert not fast_memory.fits(torch.nn.RNNCell(2, 3), arguments[0])
    calls: list[object] = []
    memory.cell.register_forward_hook(lambda *call: calls.append(call))
    assert not fast_memory.fits(memory.cell, arguments[0])
    memory.unroll(arguments[0], arguments[1], dict(zip(memory.parts, arguments[2], strict=True)))
    assert len(calls) == 3


def test_traces_and_compilers_use_torch(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, (features, first, before, _) = case(cell, 3, 2, 2, 3, absent=False)

    def unroll(features: Tensor) -> Tensor:
        return memory.unroll(features, first, dict(zip(memory.parts, before, strict=True)))["h"]

    compiled = torch.compile(unroll, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), unroll(features))
    monkeypatch.setattr(torch._C, "_is_tracing", lambda: True)
    assert not fast_memory.fits(memory.cell, features)

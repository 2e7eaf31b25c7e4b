"""Memories unrolled in numpy: values and slopes are those of torch's cells, one step after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlplug_core.fast import memory as fast_memory
from rlplug_core.fast import memory_steps
from rlplug_core.fast.numba_loops import memory_loops
from rlplug_core.nets.recurrent import CELLS, Cell, CellConfig, step_by_step

CELL = st.sampled_from(["gru", "lstm"])
pytestmark = pytest.mark.usefixtures("seeded")


def case(cell: str, steps: int, rows: int, size: int, units: int, absent: bool) -> tuple[Cell, list[Any]]:
    """A memory in double precision, and what it is unrolled along."""
    memory = CELLS[cell](size, CellConfig(units)).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.normal_()
    before = [torch.randn(rows, units).double().requires_grad_() for _ in memory.parts]
    features = torch.randn(steps * rows, size).double().requires_grad_()
    valid = torch.rand(steps * rows) < 0.7 if absent else None
    return memory, [features, torch.rand(steps * rows) < 0.3, before, valid]


def of_torch(memory: Cell, seen: list[Any]) -> tuple[Tensor, ...]:
    return step_by_step(memory._step, *seen)


@given(CELL, st.integers(1, 6), st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_values_and_slopes_are_those_of_torchs_cells(
    cell: str, steps: int, rows: int, size: int, units: int, absent: bool
) -> None:
    """Of all parts, at every step, with respect to weights, what was seen, and what was remembered before."""
    memory, seen = case(cell, steps, rows, size, units, absent)
    found, expected = fast_memory.along(memory.cell, *seen), of_torch(memory, seen)
    wanted = [*memory.parameters(), seen[0], *seen[2]]
    at = [torch.randn_like(part) for part in expected]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    slopes = torch.autograd.grad(found, wanted, at)
    for one, other in zip(slopes, torch.autograd.grad(expected, wanted, at), strict=True):
        torch.testing.assert_close(one, other)


def test_who_asks_for_a_part_alone_or_for_weights_alone_gets_it(cell: str) -> None:
    memory, seen = case(cell, 5, 2, 3, 4, absent=True)
    seen = [seen[0].detach(), seen[1], [part.detach() for part in seen[2]], seen[3]]
    for part in range(len(memory.parts)):
        found, expected = fast_memory.along(memory.cell, *seen)[part].sum(), of_torch(memory, seen)[part].sum()
        weights = list(memory.parameters())
        for one, other in zip(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights), strict=True):
            torch.testing.assert_close(one, other)


def test_slopes_have_slopes(cell: str) -> None:
    memory, (features, first, before, valid) = case(cell, 3, 2, 2, 3, absent=True)
    weights = list(memory.parameters())

    def values(*inputs: Tensor) -> tuple[Tensor, ...]:
        return fast_memory.along(memory.cell, inputs[0], first, inputs[1:], valid)

    assert torch.autograd.gradgradcheck(values, (features, *before))
    loss = values(features, *before)[0].square().sum()
    slopes = torch.autograd.grad(loss, weights, create_graph=True)
    again = torch.autograd.grad(sum((slope.square().sum() for slope in slopes), torch.zeros(())), features)
    plain = torch.autograd.grad(
        of_torch(memory, [features, first, before, valid])[0].square().sum(), weights, create_graph=True
    )
    expected = torch.autograd.grad(sum((slope.square().sum() for slope in plain), torch.zeros(())), features)
    torch.testing.assert_close(again, expected)


@pytest.mark.parametrize(("rows", "units"), [(1, 1), (3, 5), (8, 64)])
def test_loops_are_the_steps_in_numpy(loops: str, cell: str, rows: int, units: int) -> None:
    """In single precision, both ways, in place of arrays full of what is no number."""
    if loops == "numpy":
        pytest.skip("numpy's own")
    compiled = memory_loops()
    assert compiled is not None
    form = fast_memory.FORMS[type(CELLS[cell](1, CellConfig(1)).cell)]
    parts = 2 - form.parted
    generator = np.random.default_rng(units)

    def drawn(*shape: int) -> Any:
        return generator.normal(size=shape).astype(np.float32)

    counts = generator.random(rows) < 0.6
    x, hidden, bias = drawn(rows, form.gates * units), drawn(rows, form.gates * units), drawn(form.gates * units)
    kept, slopes = [drawn(rows, units) for _ in range(parts)], [drawn(rows, units) for _ in range(parts)]
    carries = [drawn(rows, units) for _ in range(parts)]
    results = []
    for module in (memory_steps, compiled):
        told, outputs = (
            np.full((rows, form.told * units), np.nan, np.float32),
            [np.full_like(kept[0], np.nan) for _ in kept],
        )
        getattr(module, f"{form.word}_up")(x, hidden, bias, *kept, counts, told, *outputs)
        own = [np.full_like(x, np.nan) for _ in range(1 + form.parted)]
        carried = [carry.copy() for carry in carries]
        getattr(module, f"{form.word}_down")(told, counts, *kept, *slopes, *carried, *own)
        results.append([told, *outputs, *own, *carried])
    for ours, theirs in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


def test_in_single_precision_it_is_torchs_up_to_rounding(cell: str) -> None:
    memory, (features, first, before, valid) = case(cell, 32, 8, 6, 16, absent=True)
    memory, features = memory.float(), features.detach().float().requires_grad_()
    before = [part.detach().float() for part in before]
    found = memory.unroll(features, first, dict(zip(memory.parts, before, strict=True)), valid)["h"]
    expected = of_torch(memory, [features, first, before, valid])[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    at, wanted = torch.randn_like(expected), [*memory.parameters(), features]
    for one, other in zip(
        torch.autograd.grad(found, wanted, at), torch.autograd.grad(expected, wanted, at), strict=True
    ):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


def test_weights_that_changed_before_the_way_back_are_found(cell: str) -> None:
    memory, seen = case(cell, 3, 2, 2, 3, absent=False)
    loss = fast_memory.along(memory.cell, *seen)[0].sum()
    with torch.no_grad():
        memory.cell.weight_hh.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooked_traced_or_custom_cells_use_torch(cell: str) -> None:
    memory, seen = case(cell, 3, 2, 2, 3, absent=False)
    assert fast_memory.fits(memory.cell, seen[0])
    assert not fast_memory.fits(memory.cell, seen[0].half())
    assert not fast_memory.fits(torch.nn.RNNCell(2, 3), seen[0].float())
    told: list[object] = []
    memory.cell.register_forward_hook(lambda *words: told.append(words))
    assert not fast_memory.fits(memory.cell, seen[0])
    memory.unroll(seen[0], seen[1], dict(zip(memory.parts, seen[2], strict=True)))
    assert len(told) == 3


def test_a_trace_and_a_compiler_see_the_steps(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, (features, first, before, _) = case(cell, 3, 2, 2, 3, absent=False)

    def remembered(seen: Tensor) -> Tensor:
        return memory.unroll(seen, first, dict(zip(memory.parts, before, strict=True)))["h"]

    compiled = torch.compile(remembered, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), remembered(features))
    monkeypatch.setattr(torch._C, "_is_tracing", lambda: True)
    assert not fast_memory.fits(memory.cell, features)

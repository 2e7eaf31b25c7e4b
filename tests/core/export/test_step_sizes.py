"""Limits on the numbers that a program computes, and bounds of its steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

from rlplug_core.errors import RlplugError
from rlplug_core.export.program import Program, operation
from rlplug_core.export.step_sizes import SHAPED, numbers

WIDE = torch.ones(1, 5)
TALL = torch.ones(3, 1)
MASK = torch.ones(3, 5) > 0
#: Arguments of the operations, with shapes that broadcast if the operation allows it.
STEPS: dict[str, list[Any]] = {
    "aten._to_copy.default": [WIDE],
    "aten.add.Tensor": [WIDE, TALL],
    "aten.addmm.default": [torch.ones(4), TALL, torch.ones(1, 4)],
    "aten.any.dim": [MASK, 1],
    "aten.argmax.default": [WIDE, 1],
    "aten.bitwise_and.Tensor": [MASK, MASK[0]],
    "aten.bitwise_not.default": [MASK],
    "aten.cat.default": [[WIDE, WIDE, WIDE]],
    "aten.clamp.default": [WIDE, 0, 1],
    "aten.eq.Scalar": [WIDE, 1],
    "aten.full.default": [[7, 2], 0],
    "aten.logical_not.default": [MASK],
    "aten.mul.Tensor": [TALL, WIDE],
    "aten.permute.default": [WIDE, [1, 0]],
    "aten.relu.default": [WIDE],
    "aten.scalar_tensor.default": [1],
    "aten.scatter.value": [WIDE, 1, torch.zeros(1, 2, dtype=torch.long), 3.0],
    "aten.slice.Tensor": [WIDE, 1, 0, 4],
    "aten.squeeze.dims": [WIDE, [0]],
    "aten.sub.Tensor": [torch.ones(2, 1, 1), torch.ones(3, 4)],
    "aten.sym_size.int": [WIDE, 1],
    "aten.tanh.default": [WIDE],
    "aten.view.default": [WIDE, [5, 1]],
    "aten.where.self": [MASK, WIDE, TALL],
}


def test_numbers_is_an_upper_bound() -> None:
    functions = {name: operation(name) for name in STEPS}
    assert {str(function) for function in functions.values()} >= SHAPED
    wrong = []
    for name, function in functions.items():
        result = function(*STEPS[name])
        written = result.numel() if isinstance(result, torch.Tensor) else 0
        read = sum(argument.numel() for argument in STEPS[name] if isinstance(argument, torch.Tensor))
        bound = numbers(function, STEPS[name])
        wrong += [] if bound is not None and bound >= written + read else [f"{name}: {bound} < {written} + {read}"]
    assert not wrong
    assert numbers(operation("aten.expand.default"), [WIDE, [2**40, 5]]) is None


def program(*steps: list[Any]) -> Program:
    graph = {"inputs": ["x"], "tensors": {}, "steps": list(steps), "outputs": [steps[-1][0]]}
    return Program(graph, {})


def double(times: int) -> Program:
    """Make a program with a last step that returns 2^times numbers."""
    names = ["x", *(f"s{number}" for number in range(times))]
    return program(*([new, "aten.cat.default", [[{"value": old}, {"value": old}]], {}] for old, new in pairwise(names)))


def test_check_refuses_programs_with_large_results() -> None:
    inputs = {"x": torch.ones(1)}
    double(10).check(inputs, 2**28)
    double(26).check(inputs, 2**28)  # too large to run, and checked with shapes
    with pytest.raises(RlplugError, match="gives 536,870,912 numbers; do not use it"):
        double(40).check(inputs, 2**28)


def test_program_with_an_invalid_step_raises() -> None:
    wrong = program(["a", "aten.permute.default", [{"value": "x"}, [5, 6]], {}])
    for call in (lambda: wrong({"x": torch.ones(1)}), lambda: wrong.check({"x": torch.ones(1)}, 2**28)):
        with pytest.raises(RlplugError, match="this export's program does not run"):
            call()

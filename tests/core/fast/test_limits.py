"""Every compiled loop against the plain code that it stands for, at the limits of float32: one table for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.accelerator import room
from rlplug_core.batches import clipped_surrogate
from rlplug_core.fast.activations import RELU, TANH
from rlplug_core.fast.array import from_tensor
from rlplug_core.fast.forward import dense
from rlplug_core.fast.gradients import Gradients
from rlplug_core.fast.numba_loops import available
from rlplug_core.learning.estimators import explained_variance, gae, standardize
from rlplug_core.learning.losses import categorical_projection, quantile_huber, regression
from rlplug_core.learning.targets import Target
from rlplug_core.learning.update_rules import Adam, AdamW, RMSProp
from rlplug_core.nets.heads import Categorical, Gaussian, SquashedGaussian
from rlplug_core.nets.recurrent import CELLS, CellConfig
from tests.conftest import loops_by
from tests.core.fast.test_array import leaf
from tests.core.fast.test_numba_loops import linear

room()
#: Infinite, no number, the largest, the smallest, and those between the smallest and 0.
LIMITS = [np.inf, -np.inf, np.nan, 1e38, -1e38, 1e19, 1e-38, 1e-45, -1e-45, 0.0]
Kernel = Callable[[float], list[Any]]


def numbers(*shape: int, limit: float | None = None, seed: int = 0) -> Any:
    """Numbers of size 1, with a limit in one place of the second row."""
    found = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    if limit is not None:
        found.reshape(shape[0], -1)[1, 0] = limit
    return found


def differentiated(function: Callable[[Any], Any], array: Any) -> list[Any]:
    """The value of a function of an array, and its gradient, but for rows whose value is refused in any case."""
    found: list[Any] = []
    result = function(leaf(array, found))
    parts = result if isinstance(result, tuple) else (result,)
    total = sum((part * torch.linspace(0.5, 1.5, part.value.size).reshape(part.value.shape)).sum() for part in parts)
    if total.requires_grad:
        total.backward_into(Gradients({}))
    gradient = np.array(sum(found))
    for part in parts if found else ():
        gradient[~np.isfinite(part.value).reshape(len(array), -1).all(1)] = 0
    return [*(part.value for part in parts), gradient]


def rollout_of(limit: float) -> list[Any]:
    """Advantages and targets; the limit is a value, a next value and a reward, also where an episode ends."""
    found = []
    for name in ("reward", "value", "next_value"):
        for end in ("", "terminated", "truncated"):
            arrays = {one: numbers(4, 2, seed=seed) for seed, one in enumerate(("reward", "value", "next_value"))}
            arrays[name][1, 0] = limit
            ends = {one: np.zeros((4, 2), np.bool_) for one in ("terminated", "truncated")}
            if end:
                ends[end][1, 0] = True
            rollout: Any = SimpleNamespace(reward=arrays["reward"], weight=np.ones((4, 2)), whole=True, **ends)
            advantage, target = gae(rollout, arrays["value"], arrays["next_value"], 0.9, 0.8)
            # The loop leaves out a value that is subtracted and added again, where the plain code rounds.
            found += [advantage, target if name != "value" else advantage]
    return found


def variance_of(limit: float) -> list[Any]:
    rollout: Any = SimpleNamespace(whole=True)
    return [explained_variance(rollout, numbers(4, 2), numbers(4, 2, limit=limit))]


def steps_of(rule: Any) -> Kernel:
    """Two steps; the limit is a gradient, a parameter, or in the memory of the rule."""

    def kernel(limit: float) -> list[Any]:
        found = []
        for place in ("gradient", "parameters", "state"):
            parameters = torch.from_numpy(numbers(80, limit=limit if place == "parameters" else None))
            gradient = torch.from_numpy(numbers(80, limit=limit if place == "gradient" else None, seed=1))
            state = rule.start(parameters)
            for each in state.values() if place == "state" else ():
                if each.shape == parameters.shape:
                    each[1] = abs(limit)
            for _ in range(2):
                rule.step(parameters, gradient, state, 1e-2)
            found += [parameters.numpy(), *(each.numpy() for each in state.values())]
        return found

    return kernel


def target_of(limit: float) -> list[Any]:
    found = []
    for spoiled in range(2):
        own, followed = (torch.from_numpy(numbers(80, limit=limit if spoiled == one else None)) for one in range(2))
        Target(nn.Linear(1, 1), nn.Linear(1, 1)).lerp([own], [followed], 0.25)
        found.append(own.numpy())
    return found


def projection_of(limit: float) -> list[Any]:
    found = []
    for place in range(3):
        for discount in (0.9, 0.0):
            arrays = [abs(numbers(3, 5)), numbers(3), np.full(3, discount, np.float32)]
            arrays[0] /= arrays[0].sum(1, keepdims=True)
            arrays[place][1] = limit
            tensors = [from_tensor(torch.from_numpy(each)) for each in arrays]
            projected: Any = categorical_projection(*tensors, torch.linspace(-2, 2, 5))  # type: ignore[arg-type]
            found.append(projected.value)
    return found


def memory_of(cell: str) -> Kernel:
    """States and gradients of four steps; the limit is in a feature, in the state before, or in a gradient above.

    The plain code computes in double precision, because products in torch's gradients overflow before loops' do.
    """

    def kernel(limit: float) -> list[Any]:
        torch.manual_seed(0)
        memory = CELLS[cell](3, CellConfig(4))
        dtype = torch.float32 if available() else torch.float64
        memory.to(dtype)
        found = []
        for place, absent in product(("features", "before", "gradient"), (1, 3)):
            shapes = {"features": (8, 3), "before": (2, 4), "gradient": (8, 4)}
            arrays = {
                one: torch.from_numpy(numbers(*shape, limit=limit if one == place else None)).to(dtype)
                for one, shape in shapes.items()
            }
            features = arrays["features"].requires_grad_()
            before = {part: arrays["before"].clone().requires_grad_() for part in memory.parts}
            valid = torch.arange(8) != absent
            outputs = list(memory.unroll(features, torch.zeros(8, dtype=torch.bool), before, valid).values())
            inputs = [features, *before.values(), *memory.parameters()]
            gradients = torch.autograd.grad(outputs, inputs, [arrays["gradient"]] * len(outputs))
            found += [each.detach().float().numpy() for each in (*outputs, *gradients)]
        return found

    return kernel


def acting_of(limit: float) -> list[Any]:
    """Actions and log-probabilities of a head for a few rows, and the outputs of networks."""
    head, outputs = Gaussian((2,)), numbers(3, 4, limit=limit)
    found = [head.sample(outputs, numbers(3, 2)), head.host_log_prob(outputs, numbers(3, 2, seed=1))]
    torch.manual_seed(0)
    for then in (TANH, RELU):
        found.append(dense([linear(4, 5, then), linear(5, 2, None)])(outputs))
    return found


ACTION = torch.tensor([0, 2, 1])
SHARES = torch.tensor([0.2, 0.5, 0.8])
OTHER = torch.from_numpy(numbers(3, 4, seed=1))
#: Functions of an array [3, 3], of an array [3], and of an array [3, 4] with two numbers for each of two.
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "log_softmax": lambda a: a.log_softmax(-1),
    "categorical": lambda a: Categorical(3).log_prob_and_entropy(a, ACTION),
    "quantile huber": lambda a: quantile_huber(a, SHARES, OTHER),
    "quantile huber of targets": lambda a: quantile_huber(leaf(numbers(3, 3), []), SHARES, a.detach()),
}
OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "huber": lambda a: regression(a, torch.tensor([0.1, 0.2, 0.3]), "huber"),
    "surrogate": lambda a: clipped_surrogate(a, torch.tensor([0.1, -0.2, 0.3]), 0.2),
    "standardized": lambda a: standardize(a.detach(), torch.ones(3)),
}
OF_PAIRS: dict[str, Callable[[Any], Any]] = {
    "gaussian": lambda a: Gaussian((2,)).log_prob_and_entropy(a, torch.from_numpy(numbers(3, 2, seed=3))),
    "squashed gaussian": lambda a: SquashedGaussian((2,)).draw(a, torch.from_numpy(numbers(3, 2, seed=3))),
}
KERNELS: dict[str, Kernel] = {
    "gae": rollout_of,
    "explained variance": variance_of,
    **{type(rule).__name__: steps_of(rule) for rule in (Adam(), Adam(weight_decay=0.1), AdamW(), RMSProp())},
    "target": target_of,
    "projection": projection_of,
    "gru": memory_of("gru"),
    "lstm": memory_of("lstm"),
    "acting": acting_of,
}
for shape, table in (((3, 3), OF_ROWS), ((3,), OF_VALUES), ((3, 4), OF_PAIRS)):
    for name, function in table.items():
        KERNELS[name] = lambda limit, shape=shape, function=function: differentiated(  # type: ignore[misc]
            function, numbers(*shape, limit=limit)
        )


def alike(one: Any, other: Any) -> bool:
    """Whether the same numbers are finite, and those are equal; the optimizer refuses infinite ones as it does NaN."""
    one = np.asarray(one)
    other = np.asarray(other)
    finite = np.isfinite(other)
    return np.array_equal(np.isfinite(one), finite) and np.allclose(one[finite], other[finite], rtol=1e-4, atol=1e-5)


@pytest.fixture
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.usefixtures("quiet")
def test_compiled_loops_are_the_plain_code_at_the_limits_of_numbers() -> None:
    pytest.importorskip("numba")
    results: dict[str, dict[tuple[str, float], Any]] = {}
    for library in ("numpy", "numba"):
        with loops_by(library):
            results[library] = {(name, limit): kernel(limit) for name, kernel in KERNELS.items() for limit in LIMITS}
    wrong = [
        f"{key} result {number}: {one} instead of {other}"
        for key, expected in results["numpy"].items()
        for number, (one, other) in enumerate(zip(results["numba"][key], expected, strict=True))
        if not alike(one, other)
    ]
    assert not wrong, "\n".join(wrong)

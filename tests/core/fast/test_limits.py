"""All compiled loops against the plain code at the limits of float32."""

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
#: Infinity, NaN, the largest and the smallest numbers, and subnormal ones.
LIMITS = [np.inf, -np.inf, np.nan, 1e38, -1e38, 1e19, 1e-38, 1e-45, -1e-45, 0.0]
Kernel = Callable[[float], list[Any]]


def numbers(*shape: int, limit: float | None = None, seed: int = 0) -> Any:
    """Draw normal numbers, and set one of the second row to a limit."""
    array = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    if limit is not None:
        array.reshape(shape[0], -1)[1, 0] = limit
    return array


def differentiate(function: Callable[[Any], Any], array: Any) -> list[Any]:
    """Return the value of a function of an array, and its gradient for rows with finite values."""
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


def gae_at(limit: float) -> list[Any]:
    """Return advantages and targets; a value, a next value or a reward is the limit, also at the end of an episode."""
    found = []
    for name in ("reward", "value", "next_value"):
        for end in ("", "terminated", "truncated"):
            arrays = {key: numbers(4, 2, seed=seed) for seed, key in enumerate(("reward", "value", "next_value"))}
            arrays[name][1, 0] = limit
            ends = {key: np.zeros((4, 2), np.bool_) for key in ("terminated", "truncated")}
            if end:
                ends[end][1, 0] = True
            rollout: Any = SimpleNamespace(reward=arrays["reward"], weight=np.ones((4, 2)), whole=True, **ends)
            advantage, target = gae(rollout, arrays["value"], arrays["next_value"], 0.9, 0.8)
            # The plain code subtracts and adds a value again, which rounds; the loop omits both.
            found += [advantage, target if name != "value" else advantage]
    return found


def explained_variance_at(limit: float) -> list[Any]:
    rollout: Any = SimpleNamespace(whole=True)
    return [explained_variance(rollout, numbers(4, 2), numbers(4, 2, limit=limit))]


def rule_at(rule: Any) -> Kernel:
    """Make two steps; the limit is in the gradient, in the parameters, or in the state of the rule."""

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


def target_at(limit: float) -> list[Any]:
    found = []
    for limits in ((limit, None), (None, limit)):
        target, online = (torch.from_numpy(numbers(80, limit=number)) for number in limits)
        Target(nn.Linear(1, 1), nn.Linear(1, 1)).lerp([target], [online], 0.25)
        found.append(target.numpy())
    return found


def projection_at(limit: float) -> list[Any]:
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


def memory_at(cell: str) -> Kernel:
    """Return states and gradients of four steps; a feature, an initial state or an output's gradient is the limit.

    The plain code computes in double precision, because torch's gradients overflow earlier than the loops.
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
                name: torch.from_numpy(numbers(*shape, limit=limit if name == place else None)).to(dtype)
                for name, shape in shapes.items()
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


def acting_at(limit: float) -> list[Any]:
    """Return actions and log-probabilities of a head for a few rows, and outputs of networks."""
    head = Gaussian((2,))
    outputs = numbers(3, 4, limit=limit)
    found = [head.sample(outputs, numbers(3, 2)), head.host_log_prob(outputs, numbers(3, 2, seed=1))]
    torch.manual_seed(0)
    for then in (TANH, RELU):
        found.append(dense([linear(4, 5, then), linear(5, 2, None)])(outputs))
    return found


ACTION = torch.tensor([0, 2, 1])
SHARES = torch.tensor([0.2, 0.5, 0.8])
OTHER = torch.from_numpy(numbers(3, 4, seed=1))
#: Functions of an array [3, 3].
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "log_softmax": lambda a: a.log_softmax(-1),
    "categorical": lambda a: Categorical(3).log_prob_and_entropy(a, ACTION),
    "quantile huber": lambda a: quantile_huber(a, SHARES, OTHER),
    "quantile huber of targets": lambda a: quantile_huber(leaf(numbers(3, 3), []), SHARES, a.detach()),
}
#: Functions of an array [3].
OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "huber": lambda a: regression(a, torch.tensor([0.1, 0.2, 0.3]), "huber"),
    "surrogate": lambda a: clipped_surrogate(a, torch.tensor([0.1, -0.2, 0.3]), 0.2),
    "standardized": lambda a: standardize(a.detach(), torch.ones(3)),
}
#: Functions of means and deviations [3, 4].
OF_PAIRS: dict[str, Callable[[Any], Any]] = {
    "gaussian": lambda a: Gaussian((2,)).log_prob_and_entropy(a, torch.from_numpy(numbers(3, 2, seed=3))),
    "squashed gaussian": lambda a: SquashedGaussian((2,)).draw(a, torch.from_numpy(numbers(3, 2, seed=3))),
}
KERNELS: dict[str, Kernel] = {
    "gae": gae_at,
    "explained variance": explained_variance_at,
    **{type(rule).__name__: rule_at(rule) for rule in (Adam(), Adam(weight_decay=0.1), AdamW(), RMSProp())},
    "target": target_at,
    "projection": projection_at,
    "gru": memory_at("gru"),
    "lstm": memory_at("lstm"),
    "acting": acting_at,
}
for shape, table in (((3, 3), OF_ROWS), ((3,), OF_VALUES), ((3, 4), OF_PAIRS)):
    for name, function in table.items():
        KERNELS[name] = lambda limit, shape=shape, function=function: differentiate(  # type: ignore[misc]
            function, numbers(*shape, limit=limit)
        )


def same_numbers(found: Any, expected: Any) -> bool:
    """Compare finite numbers. Infinity can be NaN, because the optimizer refuses both."""
    found = np.asarray(found)
    expected = np.asarray(expected)
    finite = np.isfinite(expected)
    same = np.array_equal(np.isfinite(found), finite)
    return same and np.allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-5)


@pytest.fixture
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.usefixtures("quiet")
def test_compiled_loops_equal_plain_code_at_the_limits() -> None:
    pytest.importorskip("numba")
    results: dict[str, dict[tuple[str, float], Any]] = {}
    for library in ("numpy", "numba"):
        with loops_by(library):
            results[library] = {(name, limit): kernel(limit) for name, kernel in KERNELS.items() for limit in LIMITS}
    wrong = [
        f"{key} result {number}: {found} instead of {expected}"
        for key, plain in results["numpy"].items()
        for number, (found, expected) in enumerate(zip(results["numba"][key], plain, strict=True))
        if not same_numbers(found, expected)
    ]
    assert not wrong, "\n".join(wrong)

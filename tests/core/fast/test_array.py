"""Values and gradients of all functions of `FastTensor` against autograd, for numbers of every magnitude."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlplug_core.accelerator import room
from rlplug_core.batches import clipped_surrogate, value_error
from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.gradients import Gradients, NoFastPath
from rlplug_core.learning.estimators import standardize
from rlplug_core.learning.losses import (
    advantage_weight,
    cross_entropy,
    expectile_loss,
    quantile_huber,
    regression,
)
from rlplug_core.nets.heads import Categorical, Gaussian, SquashedGaussian
from rlplug_core.nets.q_networks import gather_actions

pytestmark = pytest.mark.usefixtures("loops")
room()

#: Numbers of every magnitude of float32.
MAGNITUDES = [0.0, -0.0, 1e-45, -1e-45, 1e-38, 1e-20, 0.3, -0.7, 1.0, -1.0, 5.0, -30.0, 100.0, -1e19, 1e38, -1e38]
LIMITS = [np.inf, -np.inf, np.nan]

#: Functions of one array [B].
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a,
    "add a number": lambda a: a + 2.5,
    "subtract from a number": lambda a: 1 - a,
    "times a number": lambda a: a * 3.0,
    "over a number": lambda a: a / 4,
    "a number over an array": lambda a: 2.0 / a,
    "times 0": lambda a: 0.0 * a + a,
    "power": lambda a: a**2,
    "torch.pow": lambda a: torch.pow(a, 3),
    "exp": lambda a: a.exp(),
    "torch.exp": torch.exp,
    "log": lambda a: a.log(),
    "sqrt": lambda a: a.sqrt(),
    "square": lambda a: a.square(),
    "torch.square": torch.square,
    "abs": lambda a: abs(a),
    "torch.abs": torch.abs,
    "tanh": lambda a: a.tanh(),
    "torch.tanh": torch.tanh,
    "relu": torch.relu,
    "softplus": functional.softplus,
    "clamp": lambda a: a.clamp(-0.5, 2.0),
    "clip": lambda a: a.clip(-0.5, 2.0),
    "torch.clamp": lambda a: torch.clamp(a, min=-0.5),
    "sum": lambda a: a.sum().reshape(1),
    "mean": lambda a: a.mean().reshape(1),
    "reshape": lambda a: a.reshape(-1, 1),
    "unsqueeze": lambda a: a.unsqueeze(1),
    "detach": lambda a: a + a.detach(),
    "huber": lambda a: functional.smooth_l1_loss(a, torch.zeros(len(a)), reduction="none"),
    "mse": lambda a: functional.mse_loss(a, torch.ones(len(a)), reduction="none"),
}
#: Functions of two arrays [B].
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "minimum": lambda a, b: a.minimum(b),
    "torch.min": torch.min,
    "torch.minimum": torch.minimum,
    "maximum": lambda a, b: a.maximum(b),
    "torch.max": torch.max,
    "dot": lambda a, b: a.dot(b).reshape(1),
    "stack": lambda a, b: torch.stack([a, b]).sum(0),
    "amin": lambda a, b: torch.stack([a, b]).amin(0),
    "cat": lambda a, b: torch.cat([a.unsqueeze(1), b.unsqueeze(1)], 1).sum(1),
    "broadcast": lambda a, b: (a.unsqueeze(1) * torch.arange(3.0) + b.unsqueeze(1)).sum(1),
    "error of values": lambda a, b: value_error(a, b.detach(), b.detach() + 0.3, 0.2),
    "surrogate": lambda a, b: clipped_surrogate(a, b.detach(), 0.2),
    "huber loss": lambda a, b: regression(a, b.detach(), "huber"),
    "squared error": lambda a, b: regression(a, b.detach(), "mse"),
    "expectile": lambda a, b: expectile_loss(a, b.detach(), 0.7),
    "weight": lambda a, b: a * advantage_weight(b, 0.5, 20.0),
    "standardized": lambda a, b: a * standardize(b.detach(), torch.ones(len(a))),
}


def leaf(values: Any, found: list[Any]) -> FastTensor:
    """Make an array that appends its gradients to a list."""

    def backward(gradient: Any, into: Gradients) -> list[Any]:
        found.append(np.array(gradient))
        return []

    return FastTensor(np.asarray(values), (), backward)


def compare(function: Callable[..., Any], arrays: list[Any], *, near: float = 1e-6) -> None:
    """Compare values and gradients of a function with those of autograd, including NaN."""
    tensors = [torch.tensor(each, requires_grad=True) for each in arrays]
    expected = function(*tensors)
    weight = torch.linspace(0.5, 1.5, expected.numel()).reshape(expected.shape).to(expected.dtype)
    wanted = torch.autograd.grad((expected * weight).sum(), tensors, allow_unused=True, materialize_grads=True)
    found: list[list[Any]] = [[] for _ in arrays]
    with np.errstate(all="ignore"):
        result = function(*(leaf(each, own) for each, own in zip(arrays, found, strict=True)))
        (result * weight).sum().backward_into(Gradients({}))
        gradients = [sum(own, np.zeros_like(each)) for own, each in zip(found, arrays, strict=True)]
    np.testing.assert_allclose(result.value, expected.detach().numpy(), rtol=near, atol=near)
    for gradient, expected in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(gradient, expected.numpy(), rtol=near, atol=near)


def faults(table: dict[str, Any], check: Callable[[str], None]) -> list[str]:
    """Check each name of a table, and return the failures with their first lines."""
    found = []
    for name in table:
        try:
            check(name)
        except (AssertionError, NoFastPath, TypeError) as error:
            found.append(f"{name}: {str(error).strip().splitlines()[:3]}")
    return found


def test_functions_of_one_array_equal_torch() -> None:
    def check(name: str) -> None:
        moderate = [value for value in MAGNITUDES if abs(value) < 1e4] if name in ("sum", "mean") else MAGNITUDES
        compare(UNARY[name], [np.array(moderate, np.float32)])
        for value in LIMITS:
            compare(UNARY[name], [np.array([value], np.float32)])

    assert not faults(UNARY, check)


def test_functions_of_two_arrays_equal_torch() -> None:
    def check(name: str) -> None:
        a, b = np.random.default_rng(1).standard_normal((2, 9)).astype(np.float32)
        compare(BINARY[name], [a, b], near=1e-5)
        for scale in (1e-30, 1e-3, 1e15):
            compare(BINARY[name], [a * np.float32(scale), b * np.float32(scale)], near=1e-4)
        a[0] = b[0]  # equal numbers share the gradient
        compare(BINARY[name], [a, b], near=1e-5)

    assert not faults(BINARY, check)


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


ACTION = torch.tensor([0, 2, 1, 2, 0])
#: Functions of an array [5, 3].
ROWS: dict[str, Callable[[Any], Any]] = {
    "log_softmax": lambda a: a.log_softmax(-1),
    "gather": lambda a: a.gather(-1, ACTION.unsqueeze(1)),
    "chosen": lambda a: gather_actions(a.unsqueeze(2), ACTION),
    "sum of rows": lambda a: a.sum(1),
    "mean of columns": lambda a: a.mean(0),
    "lowest of columns": lambda a: a.amin(0),
    "flatten": lambda a: a.flatten(),
    "index": lambda a: a[1:, None, 2] * 2.0,
    "chunk": lambda a: sum_of(a.reshape(3, 1, 5).flatten(1)[:, :4].chunk(2, -1)),
    "constant cast": lambda a: a * (a > 0).to(a.dtype),
    "constant index": lambda a: a * a.detach()[:, :1],
    "constant sort": lambda a: a * a.detach().sort(1).values,
    "constant argmax": lambda a: a.sum(1) * a.detach().argmax(1),
    "comparison": lambda a: a * (a > 0),
    "cross entropy": lambda a: cross_entropy(a.log_softmax(-1), torch.full((5, 3), 1 / 3))[0],
    "quantile huber": lambda a: quantile_huber(
        a, torch.tensor([0.2, 0.5, 0.8]), torch.from_numpy(values(5, 4, seed=1))
    ),
    "categorical": lambda a: sum_of(Categorical(3).log_prob_and_entropy(a, ACTION)),
    "elu": functional.elu,
    "silu": functional.silu,
    "leaky relu": functional.leaky_relu,
    "linear": lambda a: functional.linear(a, LAYER.weight, LAYER.bias),
    "layer norm": lambda a: functional.layer_norm(a, (3,)),
}
LAYER = nn.Linear(3, 2)


def sum_of(parts: Any) -> Any:
    first, second = parts
    return first + 0.5 * second


def test_functions_of_rows_equal_torch() -> None:
    assert not faults(ROWS, lambda name: compare(ROWS[name], [values(5, 3)], near=1e-4))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_gaussian_heads_equal_torch(scale: float) -> None:
    action = torch.from_numpy(values(5, 2, seed=3))
    outputs = values(5, 4) * np.float32([scale, scale, 1, 1])
    compare(lambda a: sum_of(Gaussian((2,)).log_prob_and_entropy(a, action)), [outputs], near=1e-3)
    outputs[0, 2:] = 4, -25  # beyond the bounds of log standard deviations

    def squashed(a: Any) -> Any:
        drawn, log_prob = SquashedGaussian((2,)).draw(a, action)
        return drawn.sum(1) + 0.5 * log_prob

    compare(squashed, [outputs], near=1e-3)


def test_gradient_of_saturated_tanh_is_zero() -> None:
    layer = nn.Linear(1, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    from rlplug_core.fast.activations import TANH
    from rlplug_core.fast.layer_ops import LinearOp, ParamGrads

    op = LinearOp(layer.weight, layer.bias, then=TANH)
    inputs = np.array([[-1e9], [-50.0], [0.0], [20.0], [np.inf], [np.nan]], np.float32)
    outputs, saved = op.forward(inputs)
    own = ParamGrads([np.zeros((1, 1), np.float32), np.zeros(1, np.float32)], fresh=False)
    with np.errstate(invalid="ignore"):
        gradient = op.backward(np.ones((6, 1), np.float32), saved, True, own)
    assert gradient is not None
    np.testing.assert_array_equal(outputs[:, 0], [-1, -1, 0, 1, 1, np.nan])
    np.testing.assert_array_equal(gradient[:, 0], [0, 0, 1, 0, 0, np.nan])


NO_FAST_PATH: dict[str, tuple[Callable[[Any], Any], str]] = {
    "unknown function": (functional.gelu, "gelu"),
    "unknown method": (lambda a: a.cumsum(0), "Tensor.cumsum"),
    "a branch on values": (lambda a: 1 if a.sum() > 0 else 2, "a branch"),
    "a number on the host": (lambda a: float(a.sum()), "a branch"),
    "numpy": (lambda a: np.exp(a), "numpy.exp"),
    "a mean loss": (lambda a: functional.mse_loss(a, a.detach()), "reduction='mean'"),
    "an array as an index": (lambda a: a[torch.tensor([0])], "an index"),
    "a tensor of autograd": (lambda a: a * (LAYER.weight * 2).sum(), "autograd computed"),
}


def test_no_fast_path_names_the_function() -> None:
    for function, message in NO_FAST_PATH.values():
        with pytest.raises(NoFastPath, match=message):
            function(leaf(values(3), []))


def test_loss_has_gradients_in_parameters() -> None:
    scale = nn.Parameter(torch.tensor([2.0]))
    into = Gradients({scale: np.zeros(1, np.float32)})
    ((scale * leaf(values(4), [])).sum() + scale).sum().backward_into(into)
    assert into[scale][0] == pytest.approx(values(4).sum() + 1)
    assert not into.zero


def test_tensor_without_gradient_is_a_constant() -> None:
    result = Tensor([2.0]) * FastTensor(np.ones(3, np.float32))
    assert isinstance(result, FastTensor)
    assert result.value.tolist() == [2, 2, 2]
    assert not result.requires_grad

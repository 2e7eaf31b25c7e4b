"""Loops compiled by numba: precision, NaN, and when they are used."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.fast import numba_loops as loops_module
from rlplug_core.fast.activations import FUNCTIONS, RELU, TANH
from rlplug_core.fast.forward import FEW, dense
from rlplug_core.fast.kernels import HostViews
from rlplug_core.fast.layer_ops import ElementwiseOp, LinearOp
from rlplug_core.fast.numba_loops import (
    activation_loops,
    available,
    describe_speed,
    loop_library,
    numba_problem,
)
from rlplug_core.learning.update_rules import Adam, AdamW, RMSProp

pytestmark = pytest.mark.usefixtures("loops")
ELU = FUNCTIONS[nn.functional.elu]


def apply(activation: str, values: list[float]) -> np.ndarray:
    """Apply the compiled loop of an activation to values with a bias of 0."""
    loops = activation_loops(activation)
    assert loops is not None
    row = np.array([values], np.float32)
    loops[0](row, np.zeros(len(values), np.float32))
    return row[0]


def test_loops_need_numba(loops: str) -> None:
    assert available() == (loops == "numba")
    assert loop_library().split()[0] == loops
    assert (activation_loops("tanh") is None) == (activation_loops("relu") is None) == (loops == "numpy")
    assert activation_loops("elu") is None


def test_failed_import_of_numba_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError("Numba needs NumPy 1.26 or less")

    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    monkeypatch.setattr(loops_module, "import_module", refuse)
    numba_problem.cache_clear()
    describe_speed.cache_clear()
    assert "cannot be used here: Numba needs NumPy 1.26 or less" in describe_speed(1)
    assert not available()
    assert loop_library() == "numpy"
    numba_problem.cache_clear()
    describe_speed.cache_clear()


def test_loops_compile_without_a_cache_directory(loops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loops == "numpy":
        pytest.skip("nothing is compiled")
    from rlplug_core.fast.loops import layers as compiled

    cached = []

    def njit(function: object, **options: object) -> object:
        cached.append(options.pop("cache", False))
        if cached[-1]:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(compiled.numba, "njit", njit)
    assert compiled.loop(apply) is apply
    assert cached == [True, False]


def test_tanh_is_precise(loops: str) -> None:
    if loops == "numpy":
        pytest.skip("numpy's own")
    values = [*np.linspace(-12, 12, 4001), 1e-30, -1e-8, 1e30, np.inf, -np.inf]
    np.testing.assert_allclose(apply("tanh", values), np.tanh(np.array(values)), rtol=5e-7, atol=1e-37)
    far = np.linspace(6, 12, 200_001)  # a value above 1 would give the gradient of a squashed action the wrong sign
    assert np.abs(apply("tanh", [*far, *-far])).max() <= 1


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_activations_keep_nan(loops: str, activation: str) -> None:
    if loops == "numpy":
        pytest.skip("numpy's own")
    assert np.isnan(apply(activation, [0.5, np.nan, -0.5])).tolist() == [False, True, False]


def test_only_float32_layers_with_bias_have_loops(loops: str) -> None:
    layers = nn.Linear(2, 3), nn.Linear(2, 3).double(), nn.Linear(2, 3, bias=False)
    ops = [LinearOp(*layer.parameters(), then=TANH) for layer in layers]
    assert [op.loops is not None for op in ops] == [loops == "numba", False, False]


def linear(
    inputs: int, outputs: int, then: ElementwiseOp | None = TANH, dtype: torch.dtype = torch.float32
) -> LinearOp:
    return LinearOp(*nn.Linear(inputs, outputs, dtype=dtype).parameters(), then=then)


@pytest.mark.parametrize(("rows", "one_loop"), [(1, True), (FEW, True), (FEW + 1, False)])
def test_one_loop_computes_all_layers_for_few_rows(
    loops: str, rows: int, one_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [linear(4, 5), linear(5, 5), linear(5, 2, None)]
    values = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    expected = values
    for layer in layers:
        expected = layer.forward(expected)[0]
    calls = count_layers(monkeypatch)
    np.testing.assert_allclose(dense(layers)(values), expected, rtol=1e-5, atol=1e-6)
    assert len(calls) == (0 if one_loop and loops == "numba" else 3)


def count_layers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows of each call of a single layer."""
    calls: list[int] = []
    forward = LinearOp.forward

    def count(op: LinearOp, values: np.ndarray) -> np.ndarray:
        calls.append(len(values))
        return forward(op, values)

    monkeypatch.setattr(LinearOp, "forward", count)
    return calls


def test_other_layers_are_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_layers(monkeypatch)
    for layers in (
        [linear(4, 5, TANH, torch.float64), linear(5, 2, None, torch.float64)],
        [linear(4, 5, ELU), linear(5, 2, None)],
        [linear(4, 5, TANH), linear(5, 3, RELU), linear(3, 2, None)],
        [linear(4, 5, TANH), linear(5, 2, TANH)],
        [linear(4, 2, None)],
    ):
        calls.clear()
        dense(layers)(np.ones((1, 4), layers[0].weight.dtype))
        assert calls == [1] * len(layers)


def test_nan_in_a_row_does_not_change_other_rows() -> None:
    outputs = dense([linear(2, 3, RELU), linear(3, 2, None)])(np.array([[1, np.nan], [1, 2]], np.float32))
    assert np.isnan(outputs[0]).all()
    assert np.isfinite(outputs[1]).all()


@pytest.mark.parametrize("rule", [Adam(weight_decay=0.1), AdamW(weight_decay=0.1), RMSProp()])
def test_rules_equal_double_precision(rule: Adam | RMSProp) -> None:
    generator = torch.Generator().manual_seed(1)
    parameters = torch.randn(1000, generator=generator) * 0.1
    doubles = parameters.double()
    state, state_of_doubles = rule.start(parameters), rule.start(doubles)
    for _ in range(20):
        gradient = torch.randn(1000, generator=generator) * 10 ** torch.randint(-6, 1, (1000,), generator=generator)
        rule.step(parameters, gradient, state, 1e-2)
        rule.step(doubles, gradient.double(), state_of_doubles, 1e-2)
    torch.testing.assert_close(parameters.double(), doubles, rtol=2e-6, atol=2e-7)


def test_step_with_infinite_mean_square_is_0(loops: str) -> None:
    """As in torch, and NaN if the gradient is infinite. A compiled division by a root once gave NaN for all."""
    if loops == "numpy":
        pytest.skip("numpy's own")
    from rlplug_core.fast.loops.learning import rmsprop

    gradient = np.array([0.0, 1e-45, 1.0, 1e38, np.inf] * 80, np.float32)
    parameters = np.ones(400, np.float32)
    rmsprop(parameters, gradient, np.full(400, np.inf, np.float32), 0.99, 1e-5, 1e-3)
    np.testing.assert_array_equal(parameters, np.array([1, 1, 1, 1, np.nan] * 80, np.float32))


def test_host_views_share_memory_with_tensors() -> None:
    views = HostViews()
    zeros = torch.zeros(2)
    ones = torch.ones(2)
    assert views.of(zeros, ones) is views.of(zeros, ones)
    views.of(ones, zeros)[0][0] = 7
    assert ones.tolist() == [7, 1]

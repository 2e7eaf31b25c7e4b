"""Loops that numba compiles: exact enough, honest about what is no number, and left alone where they cannot be."""

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
from rlplug_core.fast.numba_loops import available, how, how_on, loop_library, pair, why_not_numba
from rlplug_core.learning.update_rules import Adam, AdamW, RMSProp

pytestmark = pytest.mark.usefixtures("loops")
ELU = FUNCTIONS[nn.functional.elu]


def over(activation: str, values: list[float]) -> np.ndarray:
    """An activation of these values and a bias of 0, by loops."""
    found = pair(activation)
    assert found is not None
    row = np.array([values], np.float32)
    found[0](row, np.zeros(len(values), np.float32))
    return row[0]


def test_they_are_there_when_numba_may_compile(loops: str) -> None:
    assert available() == (loops == "numba")
    assert loop_library().split()[0] == loops
    assert (pair("tanh") is None) == (pair("relu") is None) == (loops == "numpy")
    assert pair("elu") is None


def test_a_numba_that_refuses_this_numpy_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(name: str) -> None:
        raise ImportError("Numba needs NumPy 1.26 or less")

    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    monkeypatch.setattr(loops_module, "import_module", refusing)
    why_not_numba.cache_clear()
    how_on.cache_clear()
    assert "cannot be used here: Numba needs NumPy 1.26 or less" in how()
    assert not available()
    assert loop_library() == "numpy"
    why_not_numba.cache_clear()
    how_on.cache_clear()


def test_where_nothing_can_be_kept_loops_are_compiled_anew(loops: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if loops == "numpy":
        pytest.skip("nothing is compiled")
    from rlplug_core.fast.loops import layers as compiled

    asked = []

    def njit(function: object, **options: object) -> object:
        asked.append(options.pop("cache", False))
        if asked[-1]:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(compiled.numba, "njit", njit)
    assert compiled.loop(over) is over
    assert asked == [True, False]


def test_tanh_is_within_a_few_roundings_everywhere(loops: str) -> None:
    if loops == "numpy":
        pytest.skip("numpy's own")
    values = [*np.linspace(-12, 12, 4001), 1e-30, -1e-8, 1e30, np.inf, -np.inf]
    np.testing.assert_allclose(over("tanh", values), np.tanh(np.array(values)), rtol=5e-7, atol=1e-37)
    far = np.linspace(6, 12, 200_001)  # beyond 1 the slope of a squashed action would have the wrong sign
    assert np.abs(over("tanh", [*far, *-far])).max() <= 1


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_nan_stays_nan(loops: str, activation: str) -> None:
    if loops == "numpy":
        pytest.skip("numpy's own")
    assert np.isnan(over(activation, [0.5, np.nan, -0.5])).tolist() == [False, True, False]


def test_layers_have_them_only_where_they_fit(loops: str) -> None:
    layers = nn.Linear(2, 3), nn.Linear(2, 3).double(), nn.Linear(2, 3, bias=False)
    made = [LinearOp(*layer.parameters(), then=TANH) for layer in layers]
    assert [layer.loops is not None for layer in made] == [loops == "numba", False, False]


def linear(
    inputs: int, outputs: int, then: ElementwiseOp | None = TANH, dtype: torch.dtype = torch.float32
) -> LinearOp:
    return LinearOp(*nn.Linear(inputs, outputs, dtype=dtype).parameters(), then=then)


@pytest.mark.parametrize(("rows", "looped"), [(1, True), (FEW, True), (FEW + 1, False)])
def test_few_rows_go_through_all_layers_in_one_loop(
    loops: str, rows: int, looped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [linear(4, 5), linear(5, 5), linear(5, 2, None)]
    values = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    expected = values
    for layer in layers:
        expected = layer.forward(expected)[0]
    calls = count_layers(monkeypatch)
    np.testing.assert_allclose(dense(layers)(values), expected, rtol=1e-5, atol=1e-6)
    assert len(calls) == (0 if looped and loops == "numba" else 3)


def count_layers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every call of a single layer from now on."""
    calls: list[int] = []
    forward = LinearOp.forward
    monkeypatch.setattr(LinearOp, "forward", lambda op, values: calls.append(len(values)) or forward(op, values))  # type: ignore[func-returns-value]
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


def test_nan_in_an_observation_gives_nan_in_its_row_only() -> None:
    outputs = dense([linear(2, 3, RELU), linear(3, 2, None)])(np.array([[1, np.nan], [1, 2]], np.float32))
    assert np.isnan(outputs[0]).all()
    assert np.isfinite(outputs[1]).all()


@pytest.mark.parametrize("rule", [Adam(weight_decay=0.1), AdamW(weight_decay=0.1), RMSProp()])
def test_steps_are_those_in_double_precision(rule: Adam | RMSProp) -> None:
    generator = torch.Generator().manual_seed(1)
    one = torch.randn(1000, generator=generator) * 0.1
    two = one.double()
    of_one, of_two = rule.start(one), rule.start(two)
    for _ in range(20):
        slopes = torch.randn(1000, generator=generator) * 10 ** torch.randint(-6, 1, (1000,), generator=generator)
        rule.step(one, slopes, of_one, 1e-2)
        rule.step(two, slopes.double(), of_two, 1e-2)
    torch.testing.assert_close(one.double(), two, rtol=2e-6, atol=2e-7)


def test_a_step_with_an_infinite_mean_square_is_that_of_the_formula(loops: str) -> None:
    """0, as in torch, and NaN if the gradient is infinite; the compiled division by a root gave NaN for all."""
    if loops == "numpy":
        pytest.skip("numpy's own")
    from rlplug_core.fast.loops.learning import rmsprop

    gradient = np.array([0.0, 1e-45, 1.0, 1e38, np.inf] * 80, np.float32)
    parameters = np.ones(400, np.float32)
    rmsprop(parameters, gradient, np.full(400, np.inf, np.float32), 0.99, 1e-5, 1e-3)
    np.testing.assert_array_equal(parameters, np.array([1, 1, 1, 1, np.nan] * 80, np.float32))


def test_views_are_of_the_tensors_that_they_are_asked_for() -> None:
    of_host, one, two = HostViews(), torch.zeros(2), torch.ones(2)
    first = of_host.of(one, two)
    assert of_host.of(one, two) is first
    of_host.of(two, one)[0][0] = 7
    assert two.tolist() == [7, 1]

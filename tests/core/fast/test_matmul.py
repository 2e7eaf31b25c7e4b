"""Matrix products by oneDNN and NumPy equal torch's, with second derivatives; unsupported cases use torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from rlplug_core.export.program import ignore_torch_warnings
from rlplug_core.fast import matmul
from rlplug_core.types import Spec

SPEC = Spec(Box(-1, 1, (8,)), Discrete(3), 1, "Any-v0")
SHAPES = [(2, 3, 4), (1, 5, 1), (64, 17, 33), (256, 23, 256)]


def onednn(*given: Any) -> Any:
    """Compute a layer by oneDNN, or by torch if `matmul.linear` does not support it."""
    if torch.compiler.is_compiling():
        return functional.linear(*given)
    result = matmul.linear(*given)
    return functional.linear(*given) if result is NotImplemented else result


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use oneDNN for products of any size on any machine."""
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(matmul, "ONEDNN_MINIMUM", 0)


def parts(num_envs: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((num_envs, inputs), (outputs, inputs), (outputs,))
    features, weight, bias = (torch.randn(size, requires_grad=True) for size in sizes)
    return features, weight, bias


def count_products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one with each product of oneDNN."""
    calls: list[int] = []
    product = matmul._product

    def count(*factors: Any) -> Tensor:
        calls.append(1)
        return product(*factors)

    monkeypatch.setattr(matmul, "_product", count)
    return calls


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("biased", [True, False])
def test_onednn_equals_torch(shape: tuple[int, int, int], biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_products(monkeypatch)
    *factors, bias = parts(*shape)
    wanted = [*factors, bias] if biased else factors
    ours, theirs = (
        differentiate(linear, factors, bias if biased else None, wanted) for linear in (onednn, functional.linear)
    )
    assert len(calls) > 6
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)


def differentiate(
    linear: Callable[..., Tensor], factors: list[Tensor], bias: Tensor | None, wanted: list[Tensor]
) -> tuple[Tensor, Any, Any]:
    """Return the outputs of a layer, gradients of a function of them, and gradients of the squared gradients."""
    outputs = linear(*factors, bias)
    first = torch.autograd.grad(outputs.sigmoid().square().sum(), wanted, create_graph=True)
    second = torch.autograd.grad(sum(part.square().sum() for part in first), wanted)  # type: ignore[arg-type]
    return outputs, first, second


@pytest.mark.usefixtures("_always")
def test_onednn_computes_only_required_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_products(monkeypatch)
    for wanted in ((True, True), (True, False), (False, True)):
        features, weight, bias = parts(4, 3, 2)
        for part, wants in zip((features, weight), wanted, strict=True):
            part.requires_grad_(wants)
        calls.clear()
        onednn(features, weight, bias).sum().backward()
        assert len(calls) == 1 + sum(wanted)
        assert [part.grad is not None for part in (features, weight)] == [*wanted]


@pytest.mark.usefixtures("_always")
def test_features_can_have_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs can be changed in place, as some activations do."""
    calls = count_products(monkeypatch)
    _, weight, bias = parts(1, 3, 4)
    for shape in ((2, 5, 3), (2, 1, 5, 3)):
        features = torch.randn(shape, requires_grad=True)
        found, wanted = (linear(features, weight, bias) for linear in (onednn, functional.linear))
        torch.testing.assert_close(found.relu_(), wanted.relu_())
        gradients = [torch.autograd.grad(outputs.sum(), (features, weight)) for outputs in (found, wanted)]
        torch.testing.assert_close(*gradients)
    assert calls
    row = features[0, 0, 0]
    torch.testing.assert_close(onednn(row, weight, bias), functional.linear(row, weight, bias))


@pytest.mark.usefixtures("_always")
def test_arrays_can_be_non_contiguous() -> None:
    features, weight, bias = parts(6, 4, 8)
    for factors in ((features[::2], weight), (features, weight.flip(0)), (weight.t(), features.repeat(1, 2)[:, :8])):
        given = bias if factors[0].shape[1] == 4 else None
        torch.testing.assert_close(onednn(*factors, given), functional.linear(*factors, given))


class Watch(TorchFunctionMode):
    """Counts calls of `functional.linear`, as K-FAC does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func is functional.linear
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("_always")
def test_modes_compilers_traces_and_float64_use_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_products(monkeypatch)
    factors = parts(4, 3, 2)
    with Watch() as watch:
        onednn(*factors)
    assert watch.seen == 1
    onednn(*(part.double() for part in factors))
    torch._dynamo.reset()
    torch.compile(onednn, backend="eager", fullgraph=True)(*factors)
    with ignore_torch_warnings(), torch.no_grad():
        torch.jit.trace(onednn, factors, check_trace=False)
    assert calls == []
    onednn(*factors)
    assert calls == [1]


def test_small_products_and_other_machines_use_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_products(monkeypatch)
    for faster, rows in ((True, 32), (False, 33)):
        monkeypatch.setattr(matmul, "onednn_is_faster", lambda faster=faster: faster)
        onednn(*parts(rows, 256, 256))
    assert calls == []
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: True)
    onednn(*parts(33, 256, 256))
    assert calls == [1]


@pytest.mark.parametrize(
    ("maker", "family", "capability", "expected"),
    [
        ("AuthenticAMD", 26, "AVX512", True),
        ("AuthenticAMD", 25, "AVX512", False),
        ("GenuineIntel", 26, "AVX512", False),
        ("AuthenticAMD", 26, "AVX2", False),
    ],
)
def test_onednn_is_for_avx512_of_amd(
    maker: str, family: int, capability: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "processor", lambda: (maker, family))
    for backend in ("mkl", "mkldnn"):
        monkeypatch.setattr(f"torch.backends.{backend}.is_available", lambda: True)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    matmul.onednn_is_faster.cache_clear()
    try:
        assert matmul.onednn_is_faster() is expected
    finally:
        matmul.onednn_is_faster.cache_clear()


@pytest.fixture
def _numpy_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use one thread for NumPy's products, as if oneDNN were slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(matmul, "numpy_uses_one_thread", lambda: True)
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: False)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_numpy_products")
@pytest.mark.parametrize(
    ("threads", "onednn", "size", "by_numpy"),
    [
        (1, False, matmul.NUMPY_MAXIMUM, True),
        (1, False, matmul.NUMPY_MAXIMUM + 1, False),
        (1, True, matmul.ONEDNN_MINIMUM, True),
        (1, True, matmul.ONEDNN_MINIMUM + 1, False),
        (2, False, matmul.ONEDNN_MINIMUM, True),
        (2, False, matmul.ONEDNN_MINIMUM + 1, False),
    ],
)
def test_numpy_computes_small_products(
    threads: int, onednn: bool, size: int, by_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    monkeypatch.setattr(matmul, "onednn_is_faster", lambda: onednn)
    from_numpy = Mock(wraps=torch.from_numpy)
    monkeypatch.setattr(torch, "from_numpy", from_numpy)
    row = np.ones((1, size), np.float32)
    column = np.ones((size, 1), np.float32)
    assert matmul.matmul(row, column).item() == pytest.approx(size)
    assert from_numpy.called is not by_numpy

"""Products by oneDNN are those of torch, with gradients of gradients; and who needs torch's own gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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
    """The room's product, or torch's own for what it does not take."""
    if torch.compiler.is_compiling():
        return functional.linear(*given)
    result = matmul.linear(*given)
    return functional.linear(*given) if result is NotImplemented else result


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN for products of any size, on whatever machine this is."""
    monkeypatch.setattr(matmul, "faster", lambda: True)
    monkeypatch.setattr(matmul, "WORTH", 0)


def parts(num_envs: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    sizes = ((num_envs, inputs), (outputs, inputs), (outputs,))
    features, weight, bias = (torch.randn(size, requires_grad=True) for size in sizes)
    return features, weight, bias


def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every product that oneDNN makes."""
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
def test_values_and_gradients_are_torchs(
    shape: tuple[int, int, int], biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = asked(monkeypatch)
    *factors, bias = parts(*shape)
    wanted = [*factors, bias] if biased else factors
    (mine, slopes, curves), theirs = (
        derived(linear, factors, bias if biased else None, wanted) for linear in (onednn, functional.linear)
    )
    assert len(calls) > 6
    torch.testing.assert_close((mine, slopes, curves), theirs, rtol=1e-4, atol=1e-3)


def derived(
    linear: Callable[..., Tensor], factors: list[Tensor], bias: Tensor | None, wanted: list[Tensor]
) -> tuple[Tensor, Any, Any]:
    """A layer's outputs, the gradients of a function of these, and the gradients of these gradients' size."""
    outputs = linear(*factors, bias)
    slopes = torch.autograd.grad(outputs.sigmoid().square().sum(), wanted, create_graph=True)
    curves = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), wanted)  # type: ignore[arg-type]
    return outputs, slopes, curves


@pytest.mark.usefixtures("_always")
def test_only_gradients_that_are_wanted_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = asked(monkeypatch)
    for wanted in ((True, True), (True, False), (False, True)):
        features, weight, bias = parts(4, 3, 2)
        for part, wants in zip((features, weight), wanted, strict=True):
            part.requires_grad_(wants)
        calls.clear()
        onednn(features, weight, bias).sum().backward()
        assert len(calls) == 1 + sum(wanted)
        assert [part.grad is not None for part in (features, weight)] == [*wanted]


@pytest.mark.usefixtures("_always")
def test_features_may_have_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes out may be changed in place, as activations do."""
    calls, (_, weight, bias) = asked(monkeypatch), parts(1, 3, 4)
    for shape in ((2, 5, 3), (2, 1, 5, 3)):
        features = torch.randn(shape, requires_grad=True)
        found, wanted = (linear(features, weight, bias) for linear in (onednn, functional.linear))
        torch.testing.assert_close(found.relu_(), wanted.relu_())
        slopes = [torch.autograd.grad(one.sum(), (features, weight)) for one in (found, wanted)]
        torch.testing.assert_close(*slopes)
    assert calls
    row = features[0, 0, 0]
    torch.testing.assert_close(onednn(row, weight, bias), functional.linear(row, weight, bias))


@pytest.mark.usefixtures("_always")
def test_non_contiguous_arrays_are_read_correctly() -> None:
    features, weight, bias = parts(6, 4, 8)
    for factors in ((features[::2], weight), (features, weight.flip(0)), (weight.t(), features.repeat(1, 2)[:, :8])):
        given = bias if factors[0].shape[1] == 4 else None
        torch.testing.assert_close(onednn(*factors, given), functional.linear(*factors, given))


class Watch(TorchFunctionMode):
    """Notes calls of `functional.linear`, as K-FAC does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += func is functional.linear
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("_always")
def test_who_watches_compiles_traces_or_is_not_in_float32_gets_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, factors = asked(monkeypatch), parts(4, 3, 2)
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


def test_small_products_and_other_machines_get_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = asked(monkeypatch)
    for faster, rows in ((True, 16), (False, 17)):
        monkeypatch.setattr(matmul, "faster", lambda faster=faster: faster)
        onednn(*parts(rows, 256, 256))
    assert calls == []
    monkeypatch.setattr(matmul, "faster", lambda: True)
    onednn(*parts(17, 256, 256))
    assert calls == [1]


@pytest.mark.parametrize(
    ("maker", "family", "capability", "chosen"),
    [
        ("AuthenticAMD", 26, "AVX512", True),
        ("AuthenticAMD", 25, "AVX512", False),
        ("GenuineIntel", 26, "AVX512", False),
        ("AuthenticAMD", 26, "AVX2", False),
    ],
)
def test_onednn_is_for_wide_units_of_amds(
    maker: str, family: int, capability: str, chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "processor", lambda: (maker, family))
    for backend in ("mkl", "mkldnn"):
        monkeypatch.setattr(f"torch.backends.{backend}.is_available", lambda: True)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    matmul.faster.cache_clear()
    try:
        assert matmul.faster() is chosen
    finally:
        matmul.faster.cache_clear()


@pytest.fixture
def _told_one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that was told to let numpy's products take one thread, on a processor that oneDNN does not suit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(matmul, "small_in_numpy", lambda: True)
    monkeypatch.setattr(matmul, "faster", lambda: False)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_told_one_thread")
@pytest.mark.parametrize(
    ("threads", "onednn", "size", "numpys"),
    [
        (1, False, matmul.ALONE, True),
        (1, False, matmul.ALONE + 1, False),
        (1, True, matmul.WORTH, True),
        (1, True, matmul.WORTH + 1, False),
        (2, False, matmul.WORTH, True),
        (2, False, matmul.WORTH + 1, False),
    ],
)
def test_a_single_thread_leaves_products_to_numpy(
    threads: int, onednn: bool, size: int, numpys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(threads)
    monkeypatch.setattr(matmul, "faster", lambda: onednn)
    asked, from_numpy = [], torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: asked.append(1) or from_numpy(array))
    one, other = np.ones((1, size), np.float32), np.ones((size, 1), np.float32)
    assert matmul.matmul(one, other).item() == pytest.approx(size)
    assert bool(asked) is not numpys

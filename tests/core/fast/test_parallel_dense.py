"""Dense networks on several threads equal autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlplug_core.accelerator import room
from rlplug_core.fast import dense_pass, parallel_dense
from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.gradients import Gradients
from rlplug_core.fast.parallel_dense import ParallelDense
from rlplug_core.fast.recorder import Recorder
from rlplug_core.fast.trace import Program
from rlplug_core.learning.optimizer import flatten
from tests.conftest import loops_by

ROWS = 150
INPUTS = 5
OUTPUTS = 3
room()


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use two threads on any processor and for the smallest networks."""
    pytest.importorskip("scipy")
    monkeypatch.setattr(parallel_dense, "THREADS_MINIMUM", 0)
    for name in ("available", "numpy_uses_one_thread"):
        monkeypatch.setattr(dense_pass, name, lambda: True)
    monkeypatch.setattr(parallel_dense, "onednn_is_faster", lambda: False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with loops_by("numba"):
        yield
    torch.set_num_threads(before)


def network(activation: type[nn.Module], hidden: tuple[int, ...] = (7, 6)) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, out in zip((INPUTS, *hidden), (*hidden, OUTPUTS), strict=True):
        layers += [nn.Linear(width, out), activation()]
    return nn.Sequential(*layers[:-1])


def record(module: nn.Module) -> Program:
    recording: Any = Recorder()
    program = Program(module, module(recording))
    program.check()
    return program


def join(networks: list[nn.Sequential]) -> tuple[ParallelDense, Gradients, Any]:
    """Put networks into one memory, and return their passes, gradients and the flat gradient."""
    parameters = [parameter for each in networks for parameter in each.parameters()]
    _, gradient = flatten(parameters)
    flat = gradient.numpy()
    ends = np.cumsum([parameter.numel() for parameter in parameters])[:-1]
    parts = zip(parameters, np.split(flat, ends), strict=True)
    into = Gradients({parameter: part.reshape(parameter.shape) for parameter, part in parts})
    return ParallelDense([record(each) for each in networks]), into, flat


def autograd(networks: list[nn.Sequential], obs: Any, above: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs, the gradient of observations and that of all weights, by autograd."""
    tensor = torch.from_numpy(obs).requires_grad_()
    outputs = torch.stack([each(tensor) for each in networks])
    parameters = [parameter for each in networks for parameter in each.parameters()]
    below, *own = torch.autograd.grad(outputs, [tensor, *parameters], torch.from_numpy(above))
    return outputs.detach(), below, torch.cat([gradient.ravel() for gradient in own])


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize(("count", "threads"), [(1, 2), (2, 2), (3, 4)])
def test_parallel_dense_equals_autograd(activation: type[nn.Module], count: int, threads: int) -> None:
    torch.set_num_threads(threads)
    networks = [network(activation) for _ in range(count)]
    through, into, flat = join(networks)
    obs = numbers(ROWS, INPUTS)
    above = numbers(count, ROWS, OUTPUTS)
    expected, below, own = autograd(networks, obs, above)
    assert through.is_faster(obs)
    result = through(FastTensor(obs, (), lambda gradient, into: ()))
    assert result.backward_of is not None
    (found,) = result.backward_of(above, into)
    for array, tensor in ((result.value, expected), (found, below), (flat, own)):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-3, atol=1e-4)
    result.backward_of(above, into)  # gradients accumulate
    np.testing.assert_allclose(flat, 2 * own.numpy(), rtol=1e-3, atol=2e-4)


def test_parallel_dense_equals_autograd_at_the_limits() -> None:
    """The other loops are in `test_limits.py`."""
    wrong = []
    for activation in (nn.ReLU, nn.Tanh):
        for limits in ([np.inf, -np.inf, np.nan, 1e38], [1e30, -1e30, 1e-38, 1e-45]):
            obs = numbers(ROWS, INPUTS)
            obs[:4, 0] = limits
            above = numbers(2, ROWS, OUTPUTS)
            networks = [network(activation) for _ in range(2)]
            through, into, flat = join(networks)
            expected, below, own = autograd(networks, obs, above)
            assert through.is_faster(obs)
            result = through(FastTensor(obs, (), lambda gradient, into: ()))
            assert result.backward_of is not None
            with np.errstate(all="ignore"):
                (found,) = result.backward_of(above, into)
            pairs = ((result.value, expected), (found, below), (flat, own))
            for part, (array, tensor) in enumerate(pairs):
                finite = tensor.isfinite().numpy()
                same = np.array_equal(np.isfinite(array), finite)
                if not (same and np.allclose(array[finite], tensor.numpy()[finite], rtol=1e-3, atol=1e-4)):
                    wrong.append((activation.__name__, limits, part))
    assert not wrong


def test_other_networks_and_float64_are_not_parallel() -> None:
    through, _, _ = join([network(nn.ReLU), network(nn.Tanh)])
    assert not through.is_faster(numbers(ROWS, INPUTS))
    through, _, _ = join([network(nn.ReLU)])
    assert not through.is_faster(numbers(ROWS, INPUTS).astype(np.float64))

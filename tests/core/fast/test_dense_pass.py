"""Passes through a dense network in one loop: outputs and gradients equal autograd's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlplug_core.accelerator import room
from rlplug_core.fast import dense_pass
from rlplug_core.fast.array import FastTensor
from rlplug_core.fast.dense_pass import DensePass
from rlplug_core.fast.gradients import Gradients
from rlplug_core.fast.trace import Program
from rlplug_core.learning.optimizer import flatten
from tests.conftest import loops_by
from tests.core.fast.test_parallel_dense import INPUTS, OUTPUTS, autograd, join, network, numbers, record

room()


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let one loop compute all networks."""
    pytest.importorskip("scipy")
    monkeypatch.setattr(dense_pass, "numpy_uses_one_thread", lambda: True)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with loops_by("numba"):
        yield
    torch.set_num_threads(before)


def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each call of the loops."""
    calls: list[str] = []
    for name in ("forward", "backward"):
        method = getattr(DensePass, name)
        call = lambda *args, name=name, method=method: calls.append(name) or method(*args)  # noqa: E731
        monkeypatch.setattr(DensePass, name, call)
    return calls


def differentiate(program: Program, obs: Any, above: Any, into: Gradients, inputs: bool = True) -> list[Any]:
    """Return outputs, and the gradient at the observations if it is wanted."""
    program.check()
    result = program(FastTensor(obs, (), (lambda gradient, into: ()) if inputs else None))
    assert result.backward_of is not None
    return [result.value, *result.backward_of(above, into)]


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
@pytest.mark.parametrize("rows", [1, 40])
def test_dense_pass_equals_autograd(
    activation: type[nn.Module],
    hidden: tuple[int, ...],
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    networks = [network(activation, hidden)]
    _, into, flat = join(networks)
    obs = numbers(rows, INPUTS)
    obs.flags.writeable = False
    above = numbers(1, rows, OUTPUTS)
    expected, below, own = autograd(networks, obs.copy(), above)
    calls = passes(monkeypatch)
    outputs, passed = differentiate(record(networks[0]), obs, above[0], into)
    assert calls == ["forward", "backward"]
    for array, tensor in ((outputs, expected[0]), (passed, below), (flat, own)):
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-4, atol=1e-5)


def test_second_pass_adds_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [network(nn.Tanh)]
    program = record(networks[0])
    _, into, flat = join(networks)
    obs = numbers(9, INPUTS)
    above = numbers(1, 9, OUTPUTS)
    *_, own = autograd(networks, obs, above)
    calls = passes(monkeypatch)
    differentiate(program, obs, above[0], into, inputs=False)
    differentiate(program, obs, above[0], into, inputs=False)
    assert calls == ["forward", "backward", "forward"]  # the second gradient is added layer by layer
    np.testing.assert_allclose(flat, 2 * own.numpy(), rtol=1e-4, atol=1e-5)


def test_gradient_of_float64_becomes_float32() -> None:
    networks = [network(nn.Tanh)]
    program = record(networks[0])
    _, into, flat = join(networks)
    obs = numbers(9, INPUTS)
    above = numbers(1, 9, OUTPUTS)
    *_, own = autograd(networks, obs, above)
    differentiate(program, obs, above[0].astype(np.float64), into)
    np.testing.assert_allclose(flat, own.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained", [0, 2])
def test_parameters_without_gradient_get_none(trained: int) -> None:
    networks = [network(nn.ReLU)]
    program = record(networks[0])
    _, into, flat = join(networks)
    kept = Gradients(dict(list(into.items())[:trained]))
    obs = numbers(9, INPUTS)
    above = numbers(1, 9, OUTPUTS)
    _, below, own = autograd(networks, obs, above)
    _, passed = differentiate(program, obs, above[0], kept)
    count = sum(part.size for part in kept.values())
    np.testing.assert_allclose(passed, below.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(flat[:count], own.numpy()[:count], rtol=1e-4, atol=1e-5)
    assert not flat[count:].any()


def test_pass_uses_parameters_after_they_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [network(nn.Tanh)]
    program = record(networks[0])
    obs = numbers(4, INPUTS)
    for factor in (1.0, 2.0):
        for parameter in networks[0].parameters():
            parameter.data = parameter.data * factor
        _, into, _ = join(networks)
        calls = passes(monkeypatch)
        outputs, *_ = differentiate(program, obs, numbers(4, OUTPUTS), into)
        np.testing.assert_allclose(outputs, networks[0](torch.from_numpy(obs)).detach().numpy(), rtol=1e-4, atol=1e-6)
        assert calls[:2] == ["forward", "backward"]


def test_network_of_float64_has_no_pass() -> None:
    module = network(nn.Tanh)
    join([module])
    chain = record(module).chain
    assert dense_pass.dense_pass(chain) is not None
    flatten(list(module.double().parameters()))
    chain.refresh_views()
    assert dense_pass.dense_pass(chain) is None


def test_separate_parameters_and_float64_have_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = passes(monkeypatch)
    module = network(nn.Tanh)  # an optimizer would put its parameters into one memory
    program = record(module)
    parameters = list(module.parameters())
    into = Gradients({each: np.zeros(each.shape, np.float32) for each in parameters})
    differentiate(program, numbers(4, INPUTS), numbers(4, OUTPUTS), into)
    join([module])
    differentiate(program, numbers(4, INPUTS).astype(np.float64), numbers(4, OUTPUTS), into)
    assert not calls

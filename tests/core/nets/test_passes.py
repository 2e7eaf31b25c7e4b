"""Passes give what rules give, layer by layer, on any number of threads, and stand back where they cannot."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlplug_core.algorithm import by_rules
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import SGD
from rlplug_core.nets import by_rules as by_rules_module
from rlplug_core.nets import loops as loops_module
from rlplug_core.nets import passes
from rlplug_core.nets.by_rules import ByRules
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.loops import has_scipy, made_by
from rlplug_core.nets.net import Net
from rlplug_core.nets.node import Into, Node
from rlplug_core.nets.passes import Passes

ROWS, INPUTS, OUTPUTS = 150, 5, 3
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


@pytest.fixture(autouse=True)
def two_threads(loops: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two of torch's, of which numba's are as many; and passes for the smallest networks."""
    if loops == "numpy":
        pytest.skip("nothing is compiled")
    pytest.importorskip("scipy")
    monkeypatch.setattr(passes, "WORTH", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def network(activation: str = "relu", hidden: tuple[int, ...] = (7, 6), last: bool = False) -> nn.Sequential:
    widths = [INPUTS, *hidden, OUTPUTS]
    layers: list[nn.Module] = []
    for width, out in pairwise(widths):
        layers += [nn.Linear(width, out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[: None if last else -1])


def together(*networks: nn.Module) -> tuple[Optimizer, list[ByRules], Passes]:
    """Networks of one optimizer, their rules, and the passes through all."""
    optimizer = Optimizer([p for one in networks for p in one.parameters()], name="all", rule=SGD(), learning_rate=0.1)
    rules = [ByRules(one) for one in networks]
    assert [one.why_not() for one in rules] == [""] * len(rules)
    return optimizer, rules, Passes(rules)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def close(found: Any, expected: Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(np.array(found)), expected.detach(), rtol=1e-3, atol=1e-4)


@settings(max_examples=12, deadline=None)
@given(
    activation=st.sampled_from(sorted(ACTIVATIONS)), count=st.integers(1, 5), rows=st.integers(1, 300),
    threads=st.integers(2, 5), hidden=st.lists(st.integers(1, 9), max_size=3), last=st.booleans(),
)  # fmt: skip
def test_outputs_and_slopes_are_autograds(
    activation: str, count: int, rows: int, threads: int, hidden: list[int], last: bool
) -> None:  # fmt: skip
    torch.set_num_threads(threads)
    networks = [network(activation, tuple(hidden), last) for _ in range(count)]
    optimizer, _, through = together(*networks)
    obs, slopes = numbers(rows, INPUTS), numbers(count, rows, OUTPUTS)
    tensor = torch.from_numpy(obs).requires_grad_()
    expected = torch.stack([one(tensor) for one in networks])
    below, *own = torch.autograd.grad(expected, [tensor, *optimizer.parameters], torch.from_numpy(slopes))
    assert through.pay(obs)
    node = through(Node(obs, (), lambda slopes, into: ()))
    close(node.value, expected)
    gradient, into = optimizer.on_host()
    (found,) = node.back(slopes, into)
    close(found, below)
    close(gradient, torch.cat([one.reshape(-1) for one in own]))
    with torch.no_grad():
        np.testing.assert_array_equal(through(obs), node.value)


def test_slopes_are_added_to_what_stands_there() -> None:
    optimizer, _, through = together(network())
    obs, slopes = numbers(ROWS, INPUTS), numbers(1, ROWS, OUTPUTS)
    assert through.pay(obs)
    gradient, into = optimizer.on_host()
    through(obs).back(slopes, into)
    once = gradient.copy()
    assert np.abs(once).max() > 0.1
    through(obs).back(slopes, into)
    np.testing.assert_allclose(gradient, 2 * once, rtol=1e-5, atol=1e-6)


def test_only_what_is_wanted_has_slopes() -> None:
    """As where a part of a network is frozen, and where nothing of it is trained."""
    optimizer, _, through = together(network())
    obs, slopes = numbers(ROWS, INPUTS), numbers(1, ROWS, OUTPUTS)
    assert through.pay(obs)
    gradient, into = optimizer.on_host()
    assert through(obs).back(slopes, {}) == []
    assert not gradient.any()
    first, *others = optimizer.parameters
    through(obs).back(slopes, Into({one: into[one] for one in others}))
    assert not into[first].any()
    assert all(into[one].any() for one in others)


def test_arrays_come_in_any_order_and_are_left_alone() -> None:
    optimizer, _, through = together(network(), network())
    obs, slopes = numbers(ROWS, INPUTS), numbers(2, ROWS, OUTPUTS)
    assert through.pay(obs)
    gradient, into = optimizer.on_host()
    plain = through(obs)
    plain.back(slopes, into)
    expected = gradient.copy()
    gradient.fill(0)
    turned, still = np.asfortranarray(obs), np.asfortranarray(slopes)
    turned.flags.writeable = still.flags.writeable = False
    node = through(turned)
    node.back(still, into)
    np.testing.assert_array_equal(node.value, plain.value)
    np.testing.assert_array_equal(gradient, expected)


def test_bits_are_the_same_whichever_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with fewer cores has fewer of numba's; blocks of rows are those of torch's threads."""
    import numba

    found = []
    for most in (2, 1):
        monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", most)
        torch.manual_seed(0)
        optimizer, _, through = together(network(), network("relu"))
        obs = numbers(ROWS, INPUTS)
        assert through.pay(obs)
        node = through(obs)
        node.back(numbers(2, ROWS, OUTPUTS), optimizer.on_host()[1])
        found.append((node.value.tobytes(), optimizer.on_host()[0].tobytes()))
    assert found[0] == found[1]


def test_torch_keeps_its_number_of_threads() -> None:
    """Where numba begins its own, OpenMP is told how many cores there are."""
    script = """
import numpy as np, torch
from torch import nn
from rlplug_core.nets import loops, passes
from rlplug_core.nets.by_rules import ByRules
from rlplug_core.learning.optimizer import flatten

passes.WORTH = 0
torch.set_num_threads(2)
network = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
flatten(list(network.parameters()))
rules = ByRules(network)
assert not rules.why_not()
rules(np.ones((150, 5), np.float32))
assert rules.passes.networks is not None
print(torch.get_num_threads())
"""
    told = os.environ | {"NUMBA_NUM_THREADS": "3", "NUMBA_DISABLE_JIT": "0", "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, text=True, check=False)
    assert said.stdout == "2\n", said.stderr


def test_networks_that_moved_and_copies_are_taken_as_they_are_now() -> None:
    one, other = network(), network()
    rules = [ByRules(one), ByRules(other)]
    through, obs = Passes(rules), numbers(ROWS, INPUTS)
    assert [each.why_not() for each in rules] == ["", ""]
    assert not through.pay(obs)  # each parameter has memory of its own
    optimizer = Optimizer([*one.parameters(), *other.parameters()], name="all", rule=SGD(), learning_rate=0.1)
    twin = copy.deepcopy(through)
    assert [each.why_not() for each in rules] == ["", ""]
    assert through.pay(obs)
    with torch.no_grad():
        optimizer.flat.mul_(2)
        np.testing.assert_allclose(through(obs)[0], one(torch.from_numpy(obs)).numpy(), rtol=1e-4, atol=1e-5)
        assert [each.why_not() for each in twin.members] == ["", ""]
        assert all(mine is not its for mine, its in zip(rules, twin.members, strict=True))


def test_networks_that_share_a_layer_go_layer_by_layer() -> None:
    """Two threads would add to the same slopes."""
    one, other = network(), network()
    other[0] = one[0]
    _, _, through = together(one, other)
    assert not through.pay(numbers(ROWS, INPUTS))


@pytest.mark.parametrize(
    "networks",
    [
        [network(), network(hidden=(7, 5))],
        [network("relu"), network("tanh")],
        [nn.Sequential(nn.Linear(INPUTS, 4), nn.LayerNorm(4), nn.Linear(4, OUTPUTS))],
        [nn.Sequential(nn.Linear(INPUTS, 4), nn.SiLU(), nn.Linear(4, OUTPUTS))],
        [nn.Linear(INPUTS, OUTPUTS, bias=False)],
        [nn.Identity()],
    ],
)
def test_others_go_layer_by_layer(networks: list[nn.Module]) -> None:
    rules = [ByRules(one) for one in networks]
    assert [one.why_not() for one in rules] == [""] * len(rules)
    assert not Passes(rules).pay(numbers(ROWS, INPUTS))


def test_bfloat16_layers_keep_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several threads such a pass is faster than products that round."""
    monkeypatch.setattr(by_rules_module, "has_bfloat16", lambda: True)
    low, _ = encoder(Box(-1, 1, (INPUTS,)), Net(hidden=(7, 6), activation="relu", precision="bfloat16"))
    networks = nn.Sequential(low, nn.Linear(6, OUTPUTS)), network(last=False)
    networks[1].load_state_dict(dict(zip(networks[1].state_dict(), networks[0].state_dict().values(), strict=True)))
    _, _, through = together(*networks)
    obs = numbers(ROWS, INPUTS)
    assert through.pay(obs)
    with torch.no_grad():
        one, other = through(obs)
    assert np.array_equal(one, other)
    close(one, networks[1](torch.from_numpy(obs)))


def test_small_products_and_double_precision_go_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, through = together(network())
    obs = numbers(ROWS, INPUTS)
    assert through.pay(obs)
    assert not through.pay(obs.astype(np.float64))
    work = INPUTS * 7 + 7 * 6 + 6 * OUTPUTS
    monkeypatch.setattr(passes, "WORTH", ROWS * work + 1)
    assert not through.pay(obs)
    monkeypatch.setattr(passes, "WORTH", ROWS * work)
    assert through.pay(obs)


@pytest.mark.parametrize("threads", [1, 2])
def test_rules_take_them_on_several_threads_alone(threads: int) -> None:
    torch.set_num_threads(threads)
    _, (rules,), _ = together(network())
    rules(numbers(ROWS, INPUTS))
    assert rules.passes.asked == (threads > 1)


def test_without_scipy_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_rules() == "rules, with loops by numba"
    assert re.fullmatch(r"numba [\d.]+ and SciPy [\d.]+", made_by(threads=2))
    monkeypatch.setattr(loops_module, "find_spec", lambda name: None)
    for cached in (has_scipy, passes.pass_loops):
        cached.cache_clear()
    _, _, through = together(network())
    assert not through.pay(numbers(ROWS, INPUTS))
    assert made_by(threads=2) == made_by()
    assert by_rules().endswith("; without SciPy, threads share single products")
    torch.set_num_threads(1)
    assert by_rules() == "rules, with loops by numba"
    for cached in (has_scipy, passes.pass_loops):
        cached.cache_clear()

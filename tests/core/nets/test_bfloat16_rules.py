"""Layers that round to bfloat16 go by rules: the numbers are those of the same layers on tensors, up and down."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlplug_core.nets import by_rules, products
from rlplug_core.nets.activation_rules import FUNCTIONS
from rlplug_core.nets.bfloat16_rules import HiddenInBfloat16
from rlplug_core.nets.by_rules import ByRules, rules_of
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.layer_rules import Affine, Own
from rlplug_core.nets.net import Net
from rlplug_core.nets.q_networks import QNetwork
from rlplug_core.nets.tape import Tape
from rlplug_core.types import Spec

pytestmark = pytest.mark.usefixtures("loops")

SPEC = Spec(Box(-1, 1, (8,)), Discrete(3), 1, "Any-v0")
#: Results are rounded to eight bits, and slopes of biases are added up before they are, not after.
WITHIN: dict[str, Any] = {"rtol": 2**-6, "atol": 2**-6}


@pytest.fixture(autouse=True)
def _rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 for products of any size, on whatever machine this is."""
    for module in (products, by_rules):
        monkeypatch.setattr(module, "has_bfloat16", lambda: True)
    monkeypatch.setattr(products, "WORTH", 0)


@pytest.mark.parametrize("function", [torch.relu, torch.tanh, nn.functional.silu, nn.functional.elu])
@settings(max_examples=10, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=3, max_size=5), biased=st.booleans(), seed=st.integers(0, 99))
def test_numbers_and_slopes_are_those_of_tensors(function: Any, sizes: list[int], biased: bool, seed: int) -> None:
    torch.manual_seed(seed)
    rows, *widths = sizes
    layers = [nn.Linear(*pair, bias=biased) for pair in pairwise(widths)]
    rule = HiddenInBfloat16(layers, FUNCTIONS[function])
    obs = torch.randn(rows, widths[0], requires_grad=True)
    expected = obs
    for layer in layers:
        expected = function(products.linear_in_bfloat16(expected, layer.weight, layer.bias))
    slopes = torch.randn(expected.shape)
    true = torch.autograd.grad(expected, [obs, *rule.parameters], slopes)
    found, kept = rule.up(obs.detach().numpy())
    near: Any = (
        {"rtol": 1e-6, "atol": 1e-6} if function is torch.relu else WITHIN
    )  # others round elsewhere now and then
    torch.testing.assert_close(torch.from_numpy(found), expected.detach(), **near)
    own, rest = ([np.zeros(one.shape, np.float32) for one in rule.parameters] for _ in range(2))
    below = rule.down(slopes.numpy(), kept, True, Own(own, fresh=True))
    for slope, one in zip((below, *own), true, strict=True):
        torch.testing.assert_close(torch.from_numpy(np.array(slope)), one, **WITHIN)
    assert rule.down(slopes.numpy(), kept, False, Own(rest, fresh=False)) is None
    assert all(np.array_equal(one, other) for one, other in zip(own, rest, strict=True))


@pytest.mark.parametrize("function", [torch.relu, torch.tanh])
def test_small_products_and_doubles_are_those_of_plain_layers(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two layers has more products than `WORTH` for 5 rows, the second never has; or the other way."""
    then = FUNCTIONS[function]
    for widths, worth in (((8, 5, 3), 4 * 8 * 5), ((3, 5, 8), 4 * 8 * 5)):
        monkeypatch.setattr(products, "WORTH", worth)
        torch.manual_seed(0)
        layers = [nn.Linear(*pair) for pair in pairwise(widths)]
        low, plain = HiddenInBfloat16(layers, then), Tape([Affine(one, then) for one in layers])
        few, many = (np.random.default_rng(0).normal(size=(rows, widths[0])).astype(np.float32) for rows in (4, 5))
        assert np.array_equal(low.up(few)[0], plain.up(few)[0])
        slopes = np.ones((5, widths[-1]), np.float32)
        (outputs, kept), (exact, others) = low.up(many), plain.up(many)
        assert not np.array_equal(outputs, exact)
        np.testing.assert_allclose(outputs, exact, rtol=0.02, atol=0.02)
        own, slow = ([np.zeros(one.shape, np.float32) for one in rule.parameters] for rule in (low, plain))
        below = low.down(slopes, kept, True, Own(own, fresh=True))
        expected = plain.down(slopes, others, True, Own(slow, fresh=True))
        assert below is not None
        assert expected is not None
        one, other = (np.concatenate([part.ravel() for part in parts]) for parts in ((below, *own), (expected, *slow)))
        assert one @ other > 0.9 * np.linalg.norm(one) * np.linalg.norm(other)  # a relu at 0 may be on either side
    double = np.ones((5, 3))
    for layer in layers:
        layer.double()
    low.look()
    plain.look()
    assert np.array_equal(low.up(double)[0], plain.up(double)[0])


def made(precision: Any) -> list[nn.Module]:
    torch.manual_seed(0)
    net = Net(hidden=(32, 16), precision=precision)
    return [encoder(SPEC.obs, net)[0], QNetwork(SPEC, net)]


def test_networks_go_by_rules_as_on_tensors() -> None:
    rows = torch.rand(16, 8)
    for low, plain in zip(made("bfloat16"), made("float32"), strict=True):
        through = ByRules(low)
        assert through.why_not() == ""
        with torch.no_grad():
            found: Tensor = torch.from_numpy(through(rows.numpy()))
            assert 0 < (plain(rows).reshape(found.shape) - found).abs().max() < 0.05
            torch.testing.assert_close(found, low(rows).reshape(found.shape), rtol=1e-5, atol=1e-5)


def test_the_last_layer_of_action_values_is_exact_by_rules_too() -> None:
    rules = rules_of(made("bfloat16")[1])
    assert [type(rule) for rule in rules] == [HiddenInBfloat16, HiddenInBfloat16, Affine]


@pytest.mark.parametrize(
    ("option", "missing"), [({"layer_norm": True}, "a norm in bfloat16"), ({"activation": "gelu"}, "gelu in bfloat16")]
)
def test_unsupported_modules_give_a_reason(option: dict[str, Any], missing: str) -> None:
    network, _ = encoder(SPEC.obs, Net(hidden=(4,), precision="bfloat16", **option))
    assert ByRules(network).why_not() == f"{missing} has no rule"


def test_rules_are_plain_where_a_processor_has_no_such_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_rules, "has_bfloat16", lambda: False)
    rows = np.ones((16, 8), np.float32)
    for low, plain in zip(made("bfloat16"), made("float32"), strict=True):
        assert {type(rule) for rule in Tape(rules_of(low)).rules} == {Affine}
        with torch.no_grad():
            assert np.array_equal(*(Tape(rules_of(one)).forward(rows) for one in (low, plain)))

"""Rules give autograd's slopes, for every layer, head and operation; what has no rule, or may not use it, says so."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlplug_core.batches import clipped_surrogate
from rlplug_core.clock import Clock
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.learning.update_rules import SGD
from rlplug_core.nets.activation_rules import FUNCTIONS
from rlplug_core.nets.by_rules import ByRules, NoRule, rules_of
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.heads import ILLEGAL, Categorical, Gaussian, LogStd, SquashedGaussian
from rlplug_core.nets.layer_rules import Own, Rule
from rlplug_core.nets.net import Net
from rlplug_core.nets.node import Into, Node, beside, stacked
from rlplug_core.nets.noisy import NoisyLinear
from rlplug_core.nets.noisy_rules import NoisyAffine
from rlplug_core.nets.policies import Critic, PolicyAndCritic, PolicyNetwork
from rlplug_core.nets.popart import PopArt
from rlplug_core.nets.tape import Beside, Dueling, Tape
from rlplug_core.types import Spec

pytestmark = pytest.mark.usefixtures("loops")

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(1, 7))
#: A norm of a nearly constant layer, which one input gives now and then, has slopes of thousands of roundings.
WITHIN: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 1e-3, "atol": 1e-3},
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
}
SPEC = Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), 1, "Any-v0")
OBS = np.ones((4, 3), np.float32)


def encoded(inputs: int, **net: Any) -> nn.Module:
    module, _ = encoder(spaces.Box(-1, 1, (inputs,), np.float32), Net(**net))
    return module


def normalized(inputs: int, outputs: int) -> nn.Module:
    """Observations scaled and cut, and a layer; some values lie outside of the cut."""
    module: Any = encoded(inputs, hidden=(outputs,), normalize_obs=True)
    norm = module.norm.norm
    norm.clip = 0.5
    norm.shift.normal_()
    norm.scale.uniform_(0.5, 2)
    scaled: nn.Module = module
    return scaled


#: Networks of every layer that has a rule, by their numbers of inputs and outputs.
LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": nn.Linear,
    "without bias": lambda i, o: nn.Linear(i, o, bias=False),
    "tanh": lambda i, o: nn.Sequential(nn.Linear(i, o), nn.Tanh(), nn.Linear(o, 2)),
    "relu": lambda i, o: nn.Sequential(nn.Linear(i, o), nn.ReLU(), nn.Linear(o, 2)),
    "silu": lambda i, o: nn.Sequential(nn.SiLU(), nn.Linear(i, o), nn.SiLU()),
    "layer norm": lambda i, o: nn.Sequential(nn.Linear(i, o + 2), nn.LayerNorm(o + 2), nn.Tanh()),
    "plain layer norm": lambda i, o: nn.Sequential(nn.Linear(i, o + 2), nn.LayerNorm(o + 2, elementwise_affine=False)),
    "log std": lambda i, o: nn.Sequential(nn.Linear(i, o), LogStd(o)),
    "scaled observations": normalized,
    "elu": lambda i, o: encoded(i, hidden=(o, 3), activation="elu"),
    "leaky relu": lambda i, o: encoded(i, hidden=(o + 7, 8), activation="leaky_relu", layer_norm=True),
}
#: Those that make float32 of every observation.
ENCODERS = ("scaled observations", "elu", "leaky relu")


def check(rules: list[Rule], function: Callable[[Tensor], Tensor], obs: Tensor, seed: int) -> None:
    """A tape's outputs and slopes, at all parameters and the inputs, are autograd's."""
    tape, obs = Tape(rules), obs.requires_grad_()
    outputs = function(obs)
    slopes = torch.randn(outputs.shape, dtype=outputs.dtype, generator=torch.Generator().manual_seed(seed))
    expected = torch.autograd.grad(outputs, [obs, *tape.parameters], slopes, materialize_grads=True)
    found, kept = tape.up(obs.detach().numpy())
    within = WITHIN[obs.dtype]
    torch.testing.assert_close(torch.from_numpy(found), outputs.detach(), **within)
    torch.testing.assert_close(torch.from_numpy(tape.forward(obs.detach().numpy())), outputs.detach(), **within)
    for before in (0, 1):
        own = [np.full(one.shape, before, slopes.numpy().dtype) for one in tape.parameters]
        inputs = tape.down(slopes.numpy(), kept, True, Own(own, fresh=not before))
        for one, other in zip((inputs, *(array - before for array in own)), expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(np.array(one)), other, **within)


@pytest.mark.parametrize("layer", LAYERS)
@settings(max_examples=10, deadline=None)
@given(sizes=SIZES, double=st.booleans(), seed=st.integers(0, 99))
def test_every_layer_has_autograds_slopes(layer: str, sizes: tuple[int, int, int], double: bool, seed: int) -> None:
    rows, inputs, outputs = sizes
    dtype = torch.float64 if double and layer not in ENCODERS else torch.float32
    torch.manual_seed(seed)
    module = LAYERS[layer](inputs, outputs).to(dtype)
    check(rules_of(module), module, torch.randn(rows, inputs, dtype=dtype), seed)


@pytest.mark.parametrize("kind", ["independent", "factorized"])
@settings(max_examples=10, deadline=None)
@given(sizes=SIZES, noisy=st.booleans(), seed=st.integers(0, 99))
def test_noisy_layers_have_them_under_noise_and_for_their_means(
    kind: Any, sizes: tuple[int, int, int], noisy: bool, seed: int
) -> None:  # fmt: skip
    rows, inputs, outputs = sizes
    torch.manual_seed(seed)
    layer = NoisyLinear(inputs, outputs, kind, 0.7).double()
    noise = layer.draw(np.random.default_rng(seed)) if noisy else None
    layer.held = noise
    told = None if noise is None else torch.from_numpy(noise)
    check([NoisyAffine(layer)], lambda obs: layer(obs, told), torch.randn(rows, inputs, dtype=torch.float64), seed)


def test_values_of_popart_have_the_slopes_of_their_scale() -> None:
    torch.manual_seed(0)
    layer = PopArt(3)
    layer.scale.fill_(2.5)
    layer.shift.fill_(-4)
    check(rules_of(layer), layer, torch.randn(5, 3), 0)


@settings(max_examples=15, deadline=None)
@given(sizes=SIZES, atoms=st.integers(1, 3), seed=st.integers(0, 99))
def test_dueling_streams_and_outputs_side_by_side(sizes: tuple[int, int, int], atoms: int, seed: int) -> None:
    rows, inputs, actions = sizes
    torch.manual_seed(seed)
    advantage, value = nn.Linear(inputs, actions * atoms).double(), nn.Linear(inputs, atoms).double()
    obs = torch.randn(rows, inputs, dtype=torch.float64)

    def dueling(obs: Tensor) -> Tensor:
        apart = advantage(obs).view(rows, actions, atoms)
        both: Tensor = value(obs).unsqueeze(1) + apart - apart.mean(1, keepdim=True)
        return both.flatten(1)

    tapes = Tape(rules_of(advantage)), Tape(rules_of(value))
    check([Dueling(*tapes, actions)], dueling, obs.clone(), seed)
    check([Beside(tapes)], lambda obs: torch.cat([advantage(obs), value(obs)], 1), obs.clone(), seed)


def test_a_parameter_that_occurs_twice_has_both_slopes_and_one_that_nobody_wants_has_none() -> None:
    layer, last = nn.Linear(3, 3).double(), nn.Linear(3, 1).double()
    net = nn.Sequential(layer, nn.Tanh(), layer, last)
    obs = torch.randn(5, 3, dtype=torch.float64)
    net(obs).sum().backward()
    tape = Tape(rules_of(net))
    outputs, kept = tape.up(obs.numpy())
    own = [np.zeros(parameter.shape) for parameter in tape.parameters]
    way = tape.way(False, [*own[:4], None, None])
    assert tape.along(way, np.ones_like(outputs), kept, False, True) is None
    assert way[0][3] == (None, None)  # the last layer passes slopes on and adds none
    assert layer.weight.grad is not None
    np.testing.assert_allclose(own[0] + own[2], layer.weight.grad.numpy())


def noting(found: list[Any], number: int) -> Any:
    """What takes slopes to a list, where they add up."""

    def back(slopes: Any, into: Any) -> list[Any]:
        found[number] = found[number] + slopes
        return []

    return back


def both(a: Any, b: Any) -> Any:
    """Both together, [2, B]."""
    return torch.stack([a, b]) if isinstance(a, Tensor) else stacked([a, b])


#: Numbers made of two arrays that have slopes and two that have none, by the operations that losses use.
LOSSES: dict[str, Callable[..., Any]] = {
    "sum": lambda a, b, c, w: (a + b - c).dot(w),
    "product": lambda a, b, c, w: (a * b * 2 - 3 * a / c).dot(w),
    "exp": lambda a, b, c, w: ((a - c).exp() - 1 - (c - a)).dot(w),
    "square": lambda a, b, c, w: ((b - c).square() + (-b).abs()).dot(w),
    "clipped": lambda a, b, c, w: -(a * c).minimum(a.clamp(-0.2, 0.4) * c).dot(w),
    "surrogate": lambda a, b, c, w: clipped_surrogate(b, c - 3, 0.7).dot(w),
    "nothing of one": lambda a, b, c, w: (a + c - 0.0 * b.exp()).dot(w),
    "lowest": lambda a, b, c, w: (both(a, b).amin(0) + both(a - c, a - c).amin(0)).dot(w),
    "sum of both": lambda a, b, c, w: (both(a, b).square().sum(0) + both(b, a).mean(0)).dot(w),
    "torch's exp and square": lambda a, b, c, w: (torch.exp(a - c) + torch.square(b) - torch.tanh(a)).dot(w),
    "torch's surrogate": lambda a, b, c, w: torch.max(-c * a, -c * torch.clamp(a, -0.2, 0.4)).dot(w),
    "torch's smaller": lambda a, b, c, w: (torch.min(a, b) + torch.minimum(b, a * a) - torch.maximum(a, b)).dot(w),
    "powers": lambda a, b, c, w: ((a - c) ** 2 + torch.pow(b, 3) + torch.abs(b)).dot(w),
    "means of all": lambda a, b, c, w: (a * c).mean() + torch.mean(b) - 2 * (a + b).sum() + torch.sum(both(a, b)),
    "larger": lambda a, b, c, w: (b - c).square().maximum(((b - a).clamp(-0.1, 0.1) + c).square()).dot(w),
}


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=10, deadline=None)
@given(rows=st.integers(1, 9), seed=st.integers(0, 999))
def test_losses_of_nodes_have_autograds_slopes(loss: str, rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    c, w = torch.randn(rows, dtype=torch.float64) + 3, torch.rand(rows, dtype=torch.float64)
    leaves = [torch.randn(rows, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    expected = LOSSES[loss](*leaves, c, w)
    slopes = torch.autograd.grad(expected, leaves, allow_unused=True, materialize_grads=True)
    found: list[Any] = [np.zeros(rows), np.zeros(rows)]
    nodes = [Node(leaf.detach().numpy(), (), noting(found, number)) for number, leaf in enumerate(leaves)]
    result = LOSSES[loss](*nodes, c.numpy(), w.numpy())
    result.backward(Into({}))
    assert result.item() == pytest.approx(expected.item())
    for one, other in zip(found, slopes, strict=True):
        np.testing.assert_allclose(one, other.numpy(), atol=1e-12)


@pytest.mark.parametrize("advantage", [1.5, -1.5, 0.0])
def test_a_surrogate_is_cut_at_its_bounds_as_by_autograd(advantage: float) -> None:
    ratio = torch.tensor([0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 9.0], dtype=torch.float64, requires_grad=True)
    advantages, found = torch.full((7,), advantage, dtype=torch.float64), [np.zeros(7)]
    terms = clipped_surrogate(ratio, advantages, 0.25)
    (expected,) = torch.autograd.grad(terms.sum(), ratio)
    node: Any = clipped_surrogate(Node(ratio.detach().numpy(), (), noting(found, 0)), advantages.numpy(), 0.25)  # type: ignore[arg-type]
    node.dot(np.ones(7)).backward(Into({}))
    np.testing.assert_array_equal(node.value, terms.detach().numpy())
    np.testing.assert_array_equal(found[0], expected.numpy())


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 9), actions=st.integers(1, 5), seed=st.integers(0, 999), discrete=st.booleans())
def test_heads_have_autograds_slopes(rows: int, actions: int, seed: int, discrete: bool) -> None:
    torch.manual_seed(seed)
    head: Any = Categorical(actions) if discrete else Gaussian((actions,))
    outputs = torch.randn(rows, head.size, dtype=torch.float64, requires_grad=True)
    action = torch.randint(actions, (rows,)) if discrete else torch.randn(rows, actions, dtype=torch.float64)
    w = torch.randn(2, rows, dtype=torch.float64)
    log_prob, entropy = head.log_prob_and_entropy(outputs, action)
    (expected,) = torch.autograd.grad((log_prob * w[0] + entropy * w[1]).sum(), outputs)
    found: list[Any] = [np.zeros(outputs.shape)]
    node = Node(outputs.detach().numpy(), (), noting(found, 0))
    one, two = head.log_prob_and_entropy(node, action.numpy())
    np.testing.assert_allclose(one.value, log_prob.detach().numpy())
    np.testing.assert_allclose(two.value, entropy.detach().numpy(), atol=1e-12)
    (one.dot(w[0].numpy()) + two.dot(w[1].numpy())).backward(Into({}))
    np.testing.assert_allclose(found[0], expected.numpy(), atol=1e-12)


def test_logits_far_apart_have_their_probabilities_and_what_is_no_number_stays_none() -> None:
    logits = torch.tensor([[300.0, -300.0, 0.0], [0.0, ILLEGAL, 1.0], [-500.0, -500.0, -500.0]])
    action = torch.tensor([0, 2, 1])
    expected = torch.log_softmax(logits, 1)[torch.arange(3), action].numpy()
    node: Any = Node(logits.numpy(), (), lambda slopes, into: ())
    found, entropy = Categorical(3).log_prob_and_entropy(node, action.numpy())  # type: ignore[arg-type]
    np.testing.assert_allclose(found.value, expected, atol=1e-6)
    assert np.isfinite(entropy.value).all()
    for place in range(3):
        logits[0, place] = torch.nan
        node = Node(logits.numpy(), (), lambda slopes, into: ())
        found, entropy = Categorical(3).log_prob_and_entropy(node, action.numpy())  # type: ignore[arg-type]
        assert np.isnan([found.value[0], entropy.value[0]]).all()
        assert np.isfinite([found.value[1:], entropy.value[1:]]).all()
        logits[0, place] = 0


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 9), dims=st.integers(1, 5), seed=st.integers(0, 999), double=st.booleans())
def test_actions_through_a_tanh_have_autograds_slopes(rows: int, dims: int, seed: int, double: bool) -> None:
    """Some log standard deviations lie beyond their bounds, and some actions where tanh is flat."""
    torch.manual_seed(seed)
    kind = torch.float64 if double else torch.float32
    head, outputs = SquashedGaussian((dims,)), torch.randn(rows, 2 * dims, dtype=kind) * 3
    outputs[:, dims:] += torch.tensor([0.0, -25.0, 4.0])[torch.randint(3, (rows, dims))]
    noise, w, by_action = (torch.randn(*shape, dtype=kind) for shape in ((rows, dims), (rows,), (rows, dims)))
    action, log_prob = head.draw(outputs.requires_grad_(), noise)
    (expected,) = torch.autograd.grad((log_prob * w).sum() + (action * by_action).sum(), outputs)
    found: list[Any] = [np.zeros(outputs.shape)]
    node = Node(outputs.detach().numpy(), (), noting(found, 0))
    drawn, told = head.draw(node, noise.numpy())
    wide: Any = beside([np.ones((rows, 2), noise.numpy().dtype), drawn])  # so slopes come back as a part of others
    near = 1e-7 if double else 1e-4  # torch's softplus is its argument beyond 20, where it is 2e-9 more
    within = {"rtol": near, "atol": near}
    np.testing.assert_allclose(drawn.value, action.detach().numpy(), **within)
    np.testing.assert_allclose(told.value, log_prob.detach().numpy(), **within)
    slopes = np.concatenate([np.zeros((rows, 2), noise.numpy().dtype), by_action.numpy()], 1)
    flat = (wide * slopes).reshape(rows * (dims + 2)).dot(np.ones(rows * (dims + 2), slopes.dtype))
    (told.dot(w.numpy()) + flat).backward(Into({}))
    np.testing.assert_allclose(found[0], expected.numpy(), **within)
    for one, two in zip(head.draw(node.value, noise.numpy()), (drawn.value, told.value), strict=True):
        np.testing.assert_array_equal(one, two)


def test_broadcasting_and_targets_with_gradients_are_refused() -> None:
    node: Any = Node(np.ones(3), (), lambda slopes, into: ())
    with pytest.raises(TypeError, match="shape"):
        node + np.ones((2, 3))
    with pytest.raises(RuntimeError, match="grad"):
        node * torch.ones(3, requires_grad=True)
    assert (torch.tensor([2.0]) * node).value.tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="softplus has no rule by which a loss of arrays"):
        torch.nn.functional.softplus(node)
    for compared in (lambda: node == 1, lambda: node != np.ones(3)):  # which would be whether it is the same object
        with pytest.raises(TypeError, match="compare its values"):
            compared()


def test_functions_of_encoders_are_those_of_torch() -> None:
    values = torch.linspace(-30, 30, 601, dtype=torch.float64, requires_grad=True)
    for function, rule in FUNCTIONS.items():
        outputs, kept = rule.up(values.detach().numpy())
        (expected,) = torch.autograd.grad(function(values).sum(), values)
        np.testing.assert_allclose(outputs, function(values).detach().numpy(), atol=1e-12)
        slopes = rule.down(np.ones(601), kept, True, None)
        np.testing.assert_allclose(np.array(slopes), expected.numpy(), atol=1e-12)


def test_slopes_add_up_where_a_network_is_called_twice_or_a_layer_stands_in_two_places() -> None:
    """The first slopes of an update are written, and what comes later is added; the next update begins anew."""
    twice, other = nn.Linear(3, 3), nn.Linear(3, 1)
    net = nn.Sequential(twice, nn.Tanh(), twice, nn.Tanh(), other)
    through, alone = ByRules(net), ByRules(other)
    assert through.why_not() == alone.why_not() == ""
    optimizer = Optimizer(net.parameters(), name="all", rule=SGD(), learning_rate=0.0)
    tensor = torch.from_numpy(OBS)
    for _ in range(3):
        node = alone(OBS) + through(OBS) + through(2 * OBS)  # slopes come to the last one first
        norm = optimizer.minimize(node.reshape(4).mean(), Clock(10))
        expected = torch.autograd.grad((net(tensor) + net(2 * tensor) + other(tensor)).mean(), [*net.parameters()])
        assert float(norm) == pytest.approx(float(torch.cat([one.ravel() for one in expected]).norm()), rel=1e-5)
        assert not optimizer.gradient.any()


def test_networks_say_why_they_do_not_go_by_rules() -> None:
    policy, critic = PolicyNetwork(SPEC, Net()), Critic(SPEC, Net(activation="gelu"))
    assert policy.why_not() == ""
    assert critic.why_not() == "gelu has no rule"
    assert PolicyAndCritic(SPEC, Net(shared=True)).why_not() == "a shared trunk has no rule"
    handle = policy.outputs.register_forward_hook(lambda *_: None)
    assert policy.why_not() == "a module has a hook"
    handle.remove()
    assert policy.why_not() == ""
    policy.outputs.bias = nn.Parameter(torch.zeros(2))
    assert policy.why_not() == "parameters were replaced"
    assert Critic(SPEC, Net(), popart=True).why_not() == ""
    assert Critic(SPEC, Net()).double().why_not() == "parameters are not float32 on the CPU"
    bounded = Spec(SPEC.obs, spaces.Box(-1, 1, (2,), np.float32), 1, "Any-v0")
    assert PolicyNetwork(bounded, Net(squash=True)).why_not() == "SquashedGaussian has no rule"
    with pytest.raises(NoRule, match="Bilinear"):
        rules_of(nn.Bilinear(1, 1, 1))


def test_moved_parameters_and_copies_are_seen() -> None:
    critic = Critic(SPEC, Net())
    assert critic.why_not() == ""
    other = copy.deepcopy(critic)
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.data = torch.zeros_like(parameter)
        assert critic.why_not() == other.why_not() == ""
        np.testing.assert_allclose(critic(OBS), np.zeros(4))
        np.testing.assert_allclose(other(OBS), other(torch.from_numpy(OBS)).numpy(), atol=1e-6)
        assert other(OBS).any()


def test_slopes_reach_only_what_is_trained_and_add_up() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    through, first = ByRules(net), next(net.parameters())
    assert through.why_not() == ""
    into = Into({first: np.ones((4, 3), np.float32)})
    through(OBS).squeeze(-1).dot(np.ones(4, np.float32)).backward(into)
    net(torch.from_numpy(OBS)).sum().backward()
    assert first.grad is not None
    np.testing.assert_allclose(into[first], 1 + first.grad.numpy(), atol=1e-6)
    assert isinstance(through(OBS), Node)
    with torch.no_grad():
        assert isinstance(through(OBS), np.ndarray)

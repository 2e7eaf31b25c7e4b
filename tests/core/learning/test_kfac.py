"""K-FAC: factors, natural gradients, and the trust region of each module."""

from __future__ import annotations

from copy import deepcopy
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rlplug_core.clock import Clock
from rlplug_core.config.schedules import constant
from rlplug_core.learning.kfac import KFAC
from rlplug_core.learning.optimizer import Optimizer
from rlplug_core.nets.encoders import MLP
from rlplug_core.nets.net import Net
from tests.core.learning.test_natural import scores

pytestmark = pytest.mark.usefixtures("seeded")


def observe(kfac: KFAC, module: nn.Module, obs: Tensor) -> None:
    """Feed one batch with the log-likelihoods of a Gaussian of variance 1, one standard deviation off."""
    with kfac.capture() as seen:
        mean = module(obs)
    kfac.observe(seen, mean.flatten(1).sum(1), torch.ones(len(obs)).double())
    kfac.refresh()


def test_natural_gradient_of_a_linear_gaussian_is_exact() -> None:
    """y = W x + b + noise: all pairs of inputs and noises occur, so the Fisher matrix is a Kronecker product."""
    layer = nn.Linear(3, 2).double()
    noise = torch.tensor([[1.0, 0.5], [-1.0, -0.5], [0.3, -2.0], [-0.3, 2.0]]).double()
    root = torch.randn(5, 3).double()
    pairs = list(product(range(5), range(4)))
    obs = torch.stack([root[i] for i, _ in pairs])
    drawn = torch.stack([noise[j] for _, j in pairs])
    kfac = KFAC([(layer, None)], damping=1e-12)
    optimizer = Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    with kfac.capture() as seen:
        mean = layer(obs)
    log_likelihood = -0.5 * (mean.detach() + drawn - mean).square().sum(1)
    kfac.observe(seen, log_likelihood, torch.ones(len(obs)).double())
    kfac.refresh()
    with torch.no_grad():
        layer(obs)  # outside of the context, so not captured
    assert len(seen.calls) == 1
    score = scores(layer, -0.5 * (mean.detach() + drawn - layer(obs)).square().sum(1))
    fisher = score.T @ score / len(obs)
    gradient = torch.randn(len(optimizer.flat)).double()
    torch.testing.assert_close(kfac.natural(gradient, optimizer.state), torch.linalg.solve(fisher, gradient))


def test_damping_is_added_to_the_fisher_matrix() -> None:
    layer, obs = nn.Linear(3, 2).double(), torch.randn(6, 3).double()
    kfac = KFAC([(layer, None)], damping=0.3)
    optimizer = Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    observe(kfac, layer, obs)
    rows = torch.cat([obs, torch.ones(6, 1).double()], 1)
    fisher = torch.kron(torch.ones(2, 2).double(), rows.T @ rows / 6)  # weight rows with their bias, by outputs
    gradient = torch.randn(8).double()
    order = torch.cat([gradient[:6].view(2, 3), gradient[6:].view(2, 1)], 1).reshape(-1)
    wanted = torch.linalg.solve(fisher + 0.3 * torch.eye(8).double(), order).view(2, 4)
    wanted = torch.cat([wanted[:, :3].reshape(-1), wanted[:, 3]])
    torch.testing.assert_close(kfac.natural(gradient, optimizer.state), wanted)


def test_factors_are_moments_of_inputs_and_gradients() -> None:
    """Also for layers that are called as functions, as in `MLP`; rows of weight 0 do not count."""
    module = nn.Sequential(MLP(2, Net(hidden=(3,))), nn.Linear(3, 1, bias=False))
    obs = torch.randn(4, 2)
    weight = torch.tensor([1.0, 0.0, 2.0, 1.0])
    kfac = KFAC([(module, None)])
    optimizer = Optimizer(module.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    with kfac.capture() as seen:
        terms = module(obs)[:, 0]
    kfac.observe(seen, terms, weight)
    first = module[0].linears[0]
    second = module[1]
    counts = weight > 0
    with torch.no_grad():
        inputs = torch.cat([obs, torch.ones(4, 1)], 1)[counts]
        hidden = torch.tanh(first(obs))[counts]
        gradients = second.weight * (1 - hidden.square())
    state = optimizer.state
    torch.testing.assert_close(state["0/inputs"], inputs.T @ inputs / 3)
    torch.testing.assert_close(state["0/outputs"], gradients.T @ gradients / 3)
    torch.testing.assert_close(state["1/inputs"], hidden.T @ hidden / 3)
    torch.testing.assert_close(state["1/outputs"], torch.ones(1, 1))


def test_factors_of_convolutions_equal_those_of_linear_layers() -> None:
    """Inputs are summed and gradients averaged over positions (Grosse and Martens, 2016)."""
    convolution = nn.Conv2d(2, 3, 2).double()
    linear = nn.Linear(8, 3).double()
    for positions, image in ((1, torch.randn(5, 2, 2, 2)), (4, torch.randn(5, 2, 3, 3))):
        patches = functional.unfold(image.double(), 2).transpose(1, 2).reshape(-1, 8)
        states = []
        for layer, obs in ((convolution, image.double()), (linear, patches)):
            kfac = KFAC([(layer, None)])
            optimizer = Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
            observe(kfac, layer, obs)
            states.append(optimizer.state)
        torch.testing.assert_close(states[0]["0/inputs"], positions * states[1]["0/inputs"])
        torch.testing.assert_close(states[0]["0/outputs"], states[1]["0/outputs"])


@pytest.mark.parametrize("flat", [False, True])
def test_layer_used_several_times_per_row_is_a_convolution(flat: bool) -> None:
    convolution = nn.Conv2d(8, 3, 1).double()
    linear = nn.Linear(8, 3).double()
    obs = torch.randn(5, 4, 8).double()
    image = obs.transpose(1, 2).unflatten(2, (2, 2))
    states = []
    for layer, given in ((convolution, image), (linear, obs.flatten(0, 1) if flat else obs)):
        kfac = KFAC([(layer, None)])
        optimizer = Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
        with kfac.capture() as seen:
            mean = layer(given)
        kfac.observe(seen, mean.reshape(5, -1).sum(1), torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]).double())
        states.append(optimizer.state)
    torch.testing.assert_close(states[0]["0/inputs"], states[1]["0/inputs"])
    torch.testing.assert_close(states[0]["0/outputs"], states[1]["0/outputs"])


def test_other_layers_follow_the_plain_gradient() -> None:
    net = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding="same"), nn.Flatten(), nn.Linear(36, 2)
    )
    net[1].bias.requires_grad = net[3].weight.requires_grad = False
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    kfac = KFAC([(net, None)], damping=0.25)
    optimizer = Optimizer(trained, name="network", rule=kfac, learning_rate=constant(1.0))
    observe(kfac, net, torch.randn(5, 4, 5, 5))
    gradient = torch.randn(len(optimizer.flat))
    torch.testing.assert_close(kfac.natural(gradient, optimizer.state), gradient / 1.25)


def test_first_moments_replace_the_identity() -> None:
    layer = nn.Linear(1, 1, bias=False).double()
    kfac = KFAC([(layer, None)], decay=0.9)
    optimizer = Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    for value, wanted in ((2.0, 4.0), (4.0, 10.0), (1.0, 7.0)):
        observe(kfac, layer, torch.full((3, 1), value).double())
        assert optimizer.state["0/inputs"].item() == pytest.approx(wanted)
    for _ in range(20):
        observe(kfac, layer, torch.full((3, 1), 3.0).double())
    now = optimizer.state["0/inputs"].item()
    observe(kfac, layer, torch.zeros(3, 1).double())
    assert optimizer.state["0/inputs"].item() == pytest.approx(0.9 * now)


@pytest.mark.parametrize("width", [1.0, 25.0])
@pytest.mark.parametrize("scale", [1e-6, 1e2, 1e4])
def test_each_module_has_its_own_trust_region(scale: float, width: float) -> None:
    """The divergence ½ ΔᵀFΔ of the step is at most the radius; a module without radius takes the full step."""
    bound, free = nn.Linear(2, 2).double(), nn.Linear(2, 1).double()
    obs = torch.randn(7, 2).double()
    radius = 1e-3
    lr = 0.5
    kfac = KFAC([(bound, radius), (free, None)], damping=1e-9, momentum=0.0)
    optimizer = Optimizer(
        [*bound.parameters(), *free.parameters()], name="network", rule=kfac, learning_rate=constant(lr)
    )
    with kfac.capture() as seen:
        terms = bound(obs).sum(1) + free(obs)[:, 0]
    kfac.observe(seen, terms, torch.ones(7).double())
    kfac.refresh()
    kfac.widen(0, torch.tensor(width))
    wish = torch.randn(2, 2).double()
    loss = scale * ((bound(obs) * (obs @ wish).sum(1, keepdim=True)).mean() + free(obs).mean())
    before = optimizer.flat.clone()
    gradient = torch.cat(
        [part.reshape(-1) for part in torch.autograd.grad(loss, optimizer.parameters, retain_graph=True)]
    )
    natural = kfac.natural(gradient, optimizer.state)
    optimizer.minimize(loss, Clock(10))
    step = before - optimizer.flat
    torch.testing.assert_close(step[6:], lr * natural[6:])
    divergence = 0.5 * float(lr**2 * natural[:6] @ gradient[:6])
    factor = min(1.0, (width * radius / divergence) ** 0.5)
    torch.testing.assert_close(step[:6], lr * factor * natural[:6])
    assert (factor == 1) == (scale == 1e-6)


def test_momentum_averages_steps() -> None:
    layer = nn.Linear(1, 1, bias=False).double()
    kfac = KFAC([(layer, None)], damping=1e-12, momentum=0.75)
    optimizer = Optimizer(layer.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    kfac.refresh()
    start = optimizer.flat.item()
    for wanted in (0.25, 0.4375):
        before = optimizer.flat.item()
        optimizer.minimize(layer.weight.sum(), Clock(10))
        assert before - optimizer.flat.item() == pytest.approx(wanted)
    assert start - optimizer.flat.item() == pytest.approx(0.6875)


def test_parameters_outside_layers_follow_the_plain_gradient() -> None:
    module = nn.Module()
    module.scale = nn.Parameter(torch.ones(2))
    module.layer = nn.Linear(1, 1)
    kfac = KFAC([(module, None)], damping=0.25)
    optimizer = Optimizer(module.parameters(), name="network", rule=kfac, learning_rate=constant(1.0))
    gradient = torch.tensor([1.0, -2.0, 0.0, 0.0])
    torch.testing.assert_close(kfac.natural(gradient, optimizer.state)[:2], torch.tensor([0.8, -1.6]))


@pytest.mark.parametrize("refresh", [True, False])
def test_rescale_equals_a_constant_scale(refresh: bool) -> None:
    """Outputs become 100 times as large after two steps, or are from the start; another region is unchanged."""
    layers = (nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(3, 1))
    obs = torch.randn(20, 3).double()
    found = []
    for size, factor in ((1.0, 100.0), (100.0, 1.0)):
        body, last, other = (deepcopy(layer).double() for layer in layers)
        module = nn.Sequential(body, nn.Tanh(), last)
        kfac = KFAC([(other, 1e-3), (module, 1e-3)], damping=1e-12, momentum=0.5)
        optimizer = Optimizer(
            [*other.parameters(), *module.parameters()], name="network", rule=kfac, learning_rate=constant(0.1)
        )
        multiply(last, size)
        for step in range(4):
            if step == 2:
                size *= factor
                multiply(last, factor)
                kfac.rescale(last, factor)
            with kfac.capture() as seen:
                terms = module(obs)[:, 0] + other(obs)[:, 0]
            kfac.observe(seen, terms, torch.ones(20).double())
            if refresh or step == 0:
                kfac.refresh()
            kfac.widen(1, torch.tensor(size**2))
            errors = module(obs)[:, 0] - size * obs[:, 0], other(obs)[:, 0] - 1
            optimizer.minimize(sum(error.square().mean() for error in errors), Clock(10))
        found.append(optimizer.flat.clone())
    torch.testing.assert_close(*found)


def multiply(layer: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(factor)


def test_regions_that_share_a_parameter_raise() -> None:
    layer = nn.Linear(1, 1)
    with pytest.raises(ValueError, match="share a parameter"):
        KFAC([(layer, 0.1), (nn.Sequential(layer), None)])

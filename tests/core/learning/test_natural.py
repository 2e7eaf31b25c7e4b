"""Natural gradient steps against dense matrices of tiny networks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rlplug_core.errors import NonFinite
from rlplug_core.learning.natural import Scalar, TrustRegion, conjugate_gradient, inside_trust_region
from rlplug_core.nets.heads import Categorical, Gaussian
from tests.tables import for_each

pytestmark = pytest.mark.usefixtures("seeded")


def tiny(outputs: int) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, outputs)).double()


def scores(module: nn.Module, terms: Tensor) -> Tensor:
    """Return the gradient of each term [B] in all parameters: [B, P]."""
    parameters = list(module.parameters())
    rows = [torch.autograd.grad(term, parameters, retain_graph=True) for term in terms]
    return torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])


def dense_fisher(module: nn.Module, head: Categorical | Gaussian, obs: Tensor) -> Tensor:
    """Return E[score scoreᵀ] over observations and actions; for a Gaussian from its known moments."""
    outputs = module(obs)
    if isinstance(head, Categorical):
        total = torch.zeros(())
        for action in range(head.size):
            log_prob = head.log_prob(outputs, torch.full((len(obs),), action))
            score = scores(module, log_prob)
            total = total + torch.einsum("bi,bj,b->ij", score, score, log_prob.exp().detach())
        return total / len(obs)
    mean, log_std = outputs.chunk(2, -1)
    total = torch.zeros(())
    for i in range(head.dims):
        by_mean = scores(module, mean[:, i])
        by_log_std = scores(module, log_std[:, i])
        total = total + torch.einsum("bi,bj,b->ij", by_mean, by_mean, (-2 * log_std[:, i]).exp().detach())
        total = total + 2 * by_log_std.T @ by_log_std
    return total / len(obs)


@pytest.mark.parametrize("head", [Categorical(4), Gaussian((2,))], ids=["categorical", "gaussian"])
def test_fisher_product_equals_the_dense_matrix(head: Categorical | Gaussian) -> None:
    module = tiny(head.size)
    obs = torch.randn(5, 2).double()
    region = TrustRegion(module)
    with torch.no_grad():
        before = module(obs)
    product = region.fisher(lambda: head.kl(before, module(obs)).mean(), 0.3)
    fisher = dense_fisher(module, head, obs)
    for column, unit in enumerate(torch.eye(len(region.flat)).double()):
        torch.testing.assert_close(product(unit), fisher[:, column] + 0.3 * unit)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**31))
def test_conjugate_gradient_solves_linear_systems(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(size, size, generator=generator).double()
    matrix = root @ root.T + torch.eye(size).double()
    wanted = torch.randn(size, generator=generator).double()
    found = conjugate_gradient(lambda vector: matrix @ vector, wanted, 2 * size)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, wanted), rtol=1e-5, atol=1e-6)


def problem(advantage: Tensor, directions: int = 10, tries: int = 10) -> tuple[TrustRegion, nn.Module, Scalar, Scalar]:
    """Make a categorical policy of five observations, its surrogate loss and its divergence."""
    module = tiny(4)
    head = Categorical(4)
    obs = torch.randn(5, 2).double()
    region = TrustRegion(module, directions, tries)
    with torch.no_grad():
        before = module(obs)
    action = torch.tensor([0, 1, 2, 3, 0])

    def loss() -> Tensor:
        ratio = (head.log_prob(module(obs), action) - head.log_prob(before, action)).exp()
        return -(ratio * advantage).mean()

    return region, module, loss, lambda: head.kl(before, module(obs)).mean()


@for_each("radius", [1e-4, 1e-2, 0.3])
@for_each("scale", [1e-3, 1.0, 1e3])
def test_step_improves_within_the_radius(radius: float, scale: float) -> None:
    """The length depends on the radius, not on the scale of the advantages."""
    advantage = scale * torch.tensor([1.0, -2.0, 0.5, 1.5, -1.0]).double()
    region, _, loss, divergence = problem(advantage)
    before = region.flat.clone()
    move = region.step(loss, divergence, radius=radius, damping=1e-4)
    assert 0.3 * radius < float(move.divergence) <= radius
    assert loss().item() < float(move.loss)
    assert not torch.equal(region.flat, before)
    assert divergence().item() == float(move.divergence)


def test_small_step_is_the_natural_gradient() -> None:
    """For a small radius the direction is F⁻¹ g, and the length is that of the quadratic model, sqrt(2 radius)."""
    advantage = torch.tensor([1.0, -2.0, 0.5, 1.5, -1.0]).double()
    region, module, loss, divergence = problem(advantage, directions=60, tries=30)
    gradient = region.gradient(loss())
    product = region.fisher(divergence, 1e-3)
    fisher = torch.stack([product(unit) for unit in torch.eye(len(region.flat)).double()])
    natural = -torch.linalg.solve(fisher, gradient)
    before = region.flat.clone()
    move = region.step(loss, divergence, radius=1e-8, damping=1e-3)
    step = region.flat - before
    assert float(torch.cosine_similarity(step, natural, dim=0)) == pytest.approx(1, abs=1e-6)
    wanted = 0.8**move.failed * (2e-8 / (natural @ fisher @ natural)).sqrt() * natural.norm()
    assert float(step.norm()) == pytest.approx(float(wanted), rel=1e-5)
    assert next(module.parameters()).data_ptr() == region.flat.data_ptr()


def test_step_leaves_frozen_and_unused_parameters_unchanged() -> None:
    advantage = torch.tensor([1.0, -2.0, 0.5, 1.5, -1.0]).double()
    trained, frozen = (problem(advantage) for _ in range(2))
    for _, module, *_ in (trained, frozen):
        module.register_parameter("unused", nn.Parameter(torch.ones(2).double()))
    frozen[1][0].weight.requires_grad = False  # type: ignore[index]
    for (_, module, loss, divergence), count in ((trained, 5), (frozen, 4)):
        region = TrustRegion(module)
        before = [parameter.clone() for parameter in module.parameters()]
        move = region.step(loss, divergence, radius=0.01, damping=1e-4)
        assert loss().item() < float(move.loss)
        assert len(region.parameters) == count
        unchanged = [bool((now == then).all()) for now, then in zip(module.parameters(), before, strict=True)]
        assert unchanged == [True, count == 4, False, False, False]


def test_step_without_improvement_changes_nothing() -> None:
    region, _, loss, divergence = problem(torch.zeros(5).double())
    before = region.flat.clone()
    move = region.step(loss, divergence, radius=0.01)
    assert torch.equal(region.flat, before)
    assert move.failed == region.tries
    assert float(move.divergence) == 0


def test_non_finite_loss_changes_nothing() -> None:
    region, _, loss, divergence = problem(torch.full((5,), float("nan")).double())
    before = region.flat.clone()
    with pytest.raises(NonFinite):
        region.step(loss, divergence, radius=0.01)
    assert torch.equal(region.flat, before)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.floats(-1, 1), st.integers(0, 2**31))
def test_projection_solves_the_quadratic_program(size: int, bound: float, seed: int) -> None:
    """min ½ |z - g|² with k·z <= δ, by projected ascent on its dual: z = g - λ k with λ >= 0."""
    generator = torch.Generator().manual_seed(seed)
    gradient, constraint = (torch.randn(4, size, generator=generator).double() for _ in range(2))
    found = inside_trust_region(gradient, constraint, bound)
    for g, k, z in zip(gradient, constraint, found, strict=True):
        multiplier = torch.zeros(()).double()
        for _ in range(60):
            gap = k @ (g - multiplier * k) - bound  # the gradient of the dual
            multiplier = (multiplier + 0.5 * gap / (k @ k)).clamp(min=0)
        torch.testing.assert_close(z, g - multiplier * k, rtol=1e-6, atol=1e-9)
        assert float(k @ z) <= bound + 1e-9


def test_projection_without_constraint_changes_nothing() -> None:
    gradient = torch.randn(3, 4)
    assert torch.equal(inside_trust_region(gradient, torch.zeros(3, 4), 0.5), gradient)

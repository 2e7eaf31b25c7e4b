"""Losses written for torch go by rules where that comes to the same, and nobody who calls them can tell."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import Tensor

import rlplug_core as rl
from rlplug_core.algorithm import Context
from rlplug_core.learning.losses_by_rules import THROUGH
from rlplug_core.nets.node import FUNCTIONS, Node
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec

pytestmark = pytest.mark.usefixtures("loops")

ROWS, FEATURES, ACTIONS = 12, 4, 3


@dataclass(frozen=True)
class ForeignConfig(rl.Config):
    clip: float = 0.2
    soft: bool = False


class Foreign(rl.Algorithm[rl.Samples]):
    """Somebody's own: a clipped surrogate in the words of torch, and the errors of a critic."""

    Config = ForeignConfig
    config: ForeignConfig
    calls = 0

    def build(self) -> None:
        self.networks = rl.PolicyAndCritic(self.spec, rl.Net(hidden=(8, 6)))
        self.policy, self.critic = self.networks.policy, self.networks.critic
        self.adam = self.optimizer("adam", [self.policy, self.critic], learning_rate=1e-2, max_grad_norm=0.5)

    def learn(self, batch: rl.Samples, now: ForeignConfig, clock: rl.Clock) -> rl.Result:
        loss, metrics = self.loss(batch, now)
        metrics["loss/gradient_norm"] = self.adam.minimize(loss, clock)
        return rl.Result(metrics)

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        type(self).calls += 1
        outputs, value = self.networks(batch.obs)
        log_prob, entropy = self.policy.head.log_prob_and_entropy(outputs, batch.action)
        ratio = torch.exp(log_prob - batch.extras["log_prob"])
        low, high = 1 - now.clip, 1 + now.clip
        surrogate = torch.max(-batch.advantage * ratio, -batch.advantage * torch.clamp(ratio, low, high))
        error = torch.nn.functional.softplus(value) if now.soft else (value - batch.target) ** 2
        loss = batch.mean(surrogate + 0.5 * error - 0.01 * entropy)
        return loss, {"loss/policy": batch.mean(surrogate.detach()), "loss/entropy": entropy.detach().mean()}


class Softly(Foreign):
    """What it calls has no rule."""

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.mean(torch.nn.functional.softplus(self.critic(batch.obs))), {}


class Scaled(Foreign):
    """numpy has another deviation than torch."""

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.mean((self.critic(batch.obs) - batch.target / batch.target.std()).square()), {}


class Numbers(Foreign):
    """What it returns has no gradient."""

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.target.mean(), {}

    def learn(self, batch: rl.Samples, now: ForeignConfig, clock: rl.Clock) -> rl.Result:
        return rl.Result({"loss": self.loss(batch, now)[0]})


class Matrix(Foreign):
    """It returns all outputs, too."""

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        outputs, value = self.networks(batch.obs)
        return batch.mean(value.square()), outputs

    def learn(self, batch: rl.Samples, now: ForeignConfig, clock: rl.Clock) -> rl.Result:
        loss, outputs = self.loss(batch, now)
        self.adam.minimize(loss, clock)
        return rl.Result({"outputs": outputs.detach().mean()})


class Double(Foreign):
    """Something beside its networks has another precision."""

    def build(self) -> None:
        super().build()
        self.beside = torch.nn.Linear(1, 1).double()


class Nested(Foreign):
    """Its loss is the sum of two others, which are pure, too."""

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        return self.of_policy(batch) + self.of_critic(batch), {}

    @rl.pure
    def of_policy(self, batch: rl.Samples) -> Tensor:
        outputs = self.policy(batch.obs)
        return batch.mean(-self.policy.head.log_prob_and_entropy(outputs, batch.action)[0] * batch.advantage)

    @rl.pure
    def of_critic(self, batch: rl.Samples) -> Tensor:
        return batch.mean((self.critic(batch.obs) - batch.target).square())


class Large(Foreign):
    """A number beside large ones is what rounding left of these."""

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        error = 1e3 * (self.critic(batch.obs) - batch.target)
        centered = 1e6 * batch.target - 1e6 * batch.target.mean()
        return batch.mean(error.square()), {"loss/rest": centered.mean()}


class Apart(Foreign):
    """The policy learns through the critic, and each has an optimizer."""

    def build(self) -> None:
        self.policy = rl.PolicyNetwork(self.spec, rl.Net(hidden=(8,)))
        self.critic = rl.Critic(self.spec, rl.Net(hidden=(8,)))
        self.adam = self.optimizer("policy", [self.policy], learning_rate=1e-2)
        self.other = self.optimizer("critic", [self.critic], learning_rate=1e-2)

    @rl.pure
    def loss(self, batch: rl.Samples, now: ForeignConfig) -> tuple[Tensor, dict[str, Tensor]]:
        log_prob, _ = self.policy.head.log_prob_and_entropy(self.policy(batch.obs), batch.action)
        return batch.mean(log_prob * self.critic(batch.obs)), {}


def made(cls: type[Foreign] = Foreign, config: ForeignConfig | None = None) -> Any:
    box = spaces.Box(-9, 9, (FEATURES,), np.float32)
    return cls(Spec(box, spaces.Discrete(ACTIONS), 2, "Any-v0"), config or ForeignConfig(), Context(Seeds(3)))


def by_autograd(cls: type[Foreign] = Foreign) -> Any:
    found = made(cls)
    found._by_rules.off = True
    return found


def samples(seed: int = 0) -> rl.Samples:
    drawn = np.random.default_rng(seed)
    numbers = [torch.from_numpy(drawn.standard_normal(ROWS, dtype=np.float32)) for _ in range(3)]
    weight = torch.from_numpy(drawn.choice([0, 0.5, 1, 2], ROWS).astype(np.float32))
    obs = torch.from_numpy(drawn.standard_normal((ROWS, FEATURES), dtype=np.float32))
    action = torch.from_numpy(drawn.integers(ACTIONS, size=ROWS))
    return rl.Samples(weight, None, obs, action, numbers[0], numbers[1], {"log_prob": numbers[2] - 1})


def update(learner: Any, seed: int = 0) -> Any:
    return learner.update(samples(seed), rl.Clock(10**6)).metrics


def differentiable(learner: Any, batch: rl.Samples) -> Tensor:
    """Its loss as an update sees it."""
    learner._by_rules.open = not learner._by_rules.off
    loss: Tensor = learner.loss(batch, learner.config)[0]
    learner._by_rules.open = False
    return loss


@pytest.mark.parametrize("cls", [Foreign, Apart, Nested])
def test_a_loss_that_is_written_for_torch_goes_by_rules(cls: type[Foreign]) -> None:
    fast, plain = made(cls), by_autograd(cls)
    for seed in range(5):
        found, wanted = update(fast, seed), update(plain, seed)
        assert {name: type(value) for name, value in found.items()} == dict.fromkeys(wanted, Tensor)
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6)
    assert fast.gradients.startswith("rules")
    assert type(differentiable(fast, samples()).grad_fn) is THROUGH
    assert plain.gradients == ""
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_number_that_cancels_out_says_nothing() -> None:
    learner = made(Large)
    plain = learner.loss(samples(), learner.config)[1]["loss/rest"]
    update(learner)
    fast = update(learner)["loss/rest"]
    assert abs(float(plain - fast)) > 1e-3 * abs(float(plain)) + 1e-5  # both are nothing but rounding
    assert learner.gradients.startswith("rules")


def test_an_optimizer_moves_its_own_parameters_alone() -> None:
    fast = made(Apart)
    for seed in range(2):
        before = fast.other.flat.clone()
        update(fast, seed)
        assert torch.equal(fast.other.flat, before)
        assert not fast.other.gradient.any()
        assert not fast.adam.gradient.any()


def test_outside_of_updates_a_loss_is_what_its_author_wrote() -> None:
    fast = made()
    update(fast)
    assert type(fast.loss(samples(), fast.config)[0].grad_fn) is not THROUGH


def slopes(learner: Any, loss: Tensor, **how: Any) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(learner.parameters()), **how))


def test_whoever_computes_with_a_loss_or_differentiates_it_by_parameters_gets_the_same() -> None:
    fast, plain = made(), by_autograd()
    update(fast)
    plain.load_state_dict(fast.state_dict())

    def again(learner: Any, loss: Tensor) -> list[Tensor]:
        first = slopes(learner, loss, retain_graph=True)
        return [*slopes(learner, 2 * loss), *first]

    def curved(learner: Any, loss: Tensor) -> list[Tensor]:
        norm = torch.stack([one.square().sum() for one in slopes(learner, loss, create_graph=True)]).sum()
        return slopes(learner, norm, allow_unused=True, materialize_grads=True)

    for way in (lambda learner, loss: slopes(learner, 3 * loss + loss.square()), again, curved):
        found, wanted = (way(each, differentiable(each, samples(1))) for each in (fast, plain))
        assert any(one.any() for one in wanted)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_an_optimizer_of_torchs_own_finds_the_gradient() -> None:
    fast, plain = made(), by_autograd()
    update(fast)
    plain.load_state_dict(fast.state_dict())
    for learner in (fast, plain):
        for one in learner.parameters():
            one.grad = None
        for seed in (1, 2):  # added up: the second takes no memory of the first
            differentiable(learner, samples(seed)).backward()
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (Softly, "Softly.loss needs tensors: "),
        (Scaled, "Scaled.loss is another number on arrays"),
        (Numbers, "Numbers.loss needs tensors: it returns no numbers [] or [B] that have a gradient"),
        (Double, "Foreign.loss needs tensors: there are parameters of another type than float32"),
        (Matrix, "Matrix.loss needs tensors: it returns no numbers [] or [B] that have a gradient"),
    ],
)
def test_what_does_not_come_to_the_same_stays_with_autograd(cls: type[Foreign], why: str) -> None:
    fast, plain = made(cls), by_autograd(cls)
    for seed in range(3):
        found, wanted = update(fast, seed), update(plain, seed)
        assert {name: float(value) for name, value in found.items()} == {n: float(v) for n, v in wanted.items()}
    assert fast.gradients.startswith(f"autograd: {why}")
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        assert torch.equal(one, other)


def test_it_is_tried_once_and_a_checkpoint_knows_how_it_went() -> None:
    """Whoever resumes would else try it on other numbers, and might come to other bits."""
    fast, resumed = made(), made()
    Foreign.calls = 0
    update(fast, 0)
    assert Foreign.calls == 2
    resumed.load_state_dict(copy.deepcopy(fast.state_dict()))
    for learner in (fast, resumed):
        update(learner, 1)
    assert Foreign.calls == 4
    assert resumed.gradients == fast.gradients != ""
    for one, other in zip(fast.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    resumed.load_state_dict(made().state_dict())
    update(resumed, 0)
    assert Foreign.calls == 6


def test_an_option_that_leads_elsewhere_later_is_left_to_autograd() -> None:
    fast, plain = made(), by_autograd()
    for learner in (fast, plain):
        update(learner, 0)
        learner.config = ForeignConfig(soft=True)
        update(learner, 1)
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_parameters_that_want_no_gradient_get_none_until_they_do() -> None:
    fast, plain = made(), by_autograd()
    for learner in (fast, plain):
        learner.critic.requires_grad_(False)
        update(learner, 0)
        update(learner, 1)
        assert learner.gradients in ("", "autograd: a parameter of an optimizer wants no gradient")
        learner.critic.requires_grad_(True)
        update(learner, 2)
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert any(one.any() for one in slopes(fast, differentiable(fast, samples()))[-2:])


def test_a_copy_learns_by_itself() -> None:
    first = made()
    update(first, 0)
    before = first.adam.flat.clone()
    second = copy.deepcopy(first)
    update(second, 1)
    assert torch.equal(first.adam.flat, before)
    assert not torch.equal(second.adam.flat, before)
    loss = differentiable(second, samples())
    assert type(loss.grad_fn) is THROUGH
    wanted = slopes(second, second.loss(samples(), second.config)[0])
    for _ in range(2):
        for one, other in zip(slopes(second, loss, retain_graph=True), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


#: Arguments behind the first one of functions that take more.
FURTHER: dict[Callable[..., Any], tuple[Any, ...]] = {torch.clamp: (-0.3, 0.4), torch.pow: (3,)}
PAIRS = (torch.min, torch.minimum, torch.max, torch.maximum)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_torchs_functions_of_nodes_are_torchs(function: Callable[..., Any]) -> None:
    drawn = np.random.default_rng(1).standard_normal((2, ROWS), dtype=np.float32)
    one, two = (Node(values, (), lambda slopes, into: ()) for values in drawn)
    tensors = [torch.from_numpy(values).requires_grad_() for values in drawn]
    further = FURTHER.get(function, ())
    count = 2 if function in PAIRS else 1
    found, wanted = function(*(one, two)[:count], *further), function(*tensors[:count], *further)
    np.testing.assert_allclose(found.value, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    weights = np.ones(wanted.shape, np.float32)
    passed = found
    for source in range(count):
        slope = _slope(passed, (one, two)[source], weights)
        (told,) = torch.autograd.grad(wanted.sum(), tensors[source], retain_graph=True)
        np.testing.assert_allclose(slope, told.numpy(), rtol=1e-5, atol=1e-6)


def _slope(node: Node, source: Node, slopes: Any) -> Any:
    """Slopes at a source of a node's, however many nodes are between."""
    if node is source:
        return slopes
    below = node.back(slopes, {})
    parts = [_slope(each, source, slope) for each, slope in zip(node.sources, below, strict=True)]
    return sum(part for part in parts if part is not None) if parts else None


def test_a_function_without_a_rule_says_its_name() -> None:
    with pytest.raises(TypeError, match="softplus has no rule"):
        torch.nn.functional.softplus(Node(np.zeros(2, np.float32), (), lambda slopes, into: ()))  # type: ignore[arg-type]

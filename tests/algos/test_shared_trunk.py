"""Policy and critic with one trunk: loss and gradient equal those of two passes, and each parameter is trained once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlplug_core.errors import UsageError
from tests.algos.losses import gradients
from tests.algos.test_policy_losses import random_samples, reference
from tests.tables import for_each

SHARED = {"net.shared": True}


@for_each("env", ["Chain", "Continuous"])
@for_each("algorithm", ["a2c", "a3c", "ppo", "vac", "vpg"])
def test_loss_and_gradient_equal_two_passes(make_learner: Callable[..., Any], algorithm: str, env: str) -> None:
    learner = make_learner(algorithm, env, ent_coef=0.3, vf_coef=0.7, normalize_advantage=False, **SHARED)
    assert learner.policy.encoder is learner.critic.encoder
    batch = random_samples(env, 7, torch.tensor([1.0, 0.0, 2.5, 1.0, 0.5, 1.0, 0.0]))
    loss = learner.loss(batch, learner.config)[0]
    expected = reference(learner, batch)
    torch.testing.assert_close(loss, expected)
    for got, wanted in zip(gradients(learner, loss), gradients(learner, expected), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
@pytest.mark.parametrize(("shared", "passes"), [(True, 1), (False, 2)])
def test_loss_passes_each_trunk_once(
    make_learner: Callable[..., Any], algorithm: str, shared: bool, passes: int
) -> None:
    learner = make_learner(algorithm, "Chain", **{"net.shared": shared})
    seen = []
    for trunk in {learner.policy.encoder, learner.critic.encoder}:
        trunk.register_forward_hook(lambda *_: seen.append(1))
    learner.loss(random_samples("Chain", 3), learner.config)
    assert len(seen) == passes


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_each_parameter_is_optimized_once(make_learner: Callable[..., Any], algorithm: str) -> None:
    learner = make_learner(algorithm, "Chain", **SHARED)
    optimized = [id(parameter) for parameter in learner.optimizers[0].parameters]
    assert sorted(optimized) == sorted({id(parameter) for parameter in learner.parameters()})
    assert learner.optimizers[0].flat.numel() == sum(parameter.numel() for parameter in learner.parameters())


@pytest.mark.parametrize(
    ("algorithm", "runner"), [("a2c", {}), ("a2c", {"runner": "async", "inline": True, "workers": 2}), ("ppo", {})]
)
def test_run_changes_trunk_and_heads(
    train_runner: Callable[..., Any], make_learner: Callable[..., Any], algorithm: str, runner: dict[str, Any]
) -> None:
    after = train_runner(algorithm, "Chain", total_timesteps=512, **SHARED, **runner).snapshot()
    before = make_learner(algorithm, "Chain", **SHARED).policy.state_dict()
    for name, tensor in after.policy.state_dict().items():
        assert not torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("algorithm", ["acer", "acktr", "dqn", "trpo"])
def test_separate_training_of_policy_and_values_raises(make_learner: Callable[..., Any], algorithm: str) -> None:
    with pytest.raises(UsageError, match=r"leave (net\.shared|it) at false"):
        make_learner(algorithm, "Chain", **SHARED)


@pytest.mark.parametrize("algorithm", ["sac", "td3", "crossq"])
def test_off_policy_critics_have_no_shared_trunk(make_learner: Callable[..., Any], algorithm: str) -> None:
    with pytest.raises(UsageError, match="leave it at false"):
        make_learner(algorithm, "Continuous", **SHARED)

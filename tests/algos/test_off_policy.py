"""DDPG, TD3 and SAC: losses and gradients transition by transition, targets, delays, the temperature."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from torch import Tensor

from rlplug_algos.off_policy.sac import SAC
from rlplug_core.batches import Transitions
from rlplug_core.clock import Clock
from rlplug_core.context import Context
from rlplug_core.errors import UsageError
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec
from tests.algos.losses import critic_loss, gradients_of, pairs, policy_loss, scatter, with_draws

SMALL = {"net.hidden": [16], "random_steps": 0}
NAMES = ["ddpg", "td3", "sac"]


def transitions(count: int, weight: Tensor | None = None) -> Transitions:
    """Return random transitions of `Continuous`; some of them terminate."""
    number = torch.rand(4, count, 1) * 2 - 1
    return Transitions(
        weight=torch.ones(count) if weight is None else weight,
        share=None,
        obs=number[0],
        action=number[1],
        reward=3 * number[2, :, 0],
        discount=0.9 * torch.randint(0, 2, (count,)),
        next_obs=number[3],
        index=torch.arange(count),
        extras={},
    )


def normal_log_prob(value: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    return -0.5 * ((value - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


def drawn(learner: Any, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return an action [1, 1] and its log-probability by the textbook's formula."""
    mean, log_std = learner.policy(obs).chunk(2, 1)
    before = mean + log_std.exp() * noise
    action = before.tanh()
    return action, (normal_log_prob(before, mean, log_std) - (1 - action**2 + 1e-12).log()).squeeze()


def next_target(name: str, learner: Any, batch: Transitions, i: int) -> float:
    """Return r + discount * the paper's bootstrap value for one transition."""
    obs = batch.next_obs[i : i + 1]
    with torch.no_grad():
        bonus = 0.0
        if name == "sac":
            action, log_prob = drawn(learner, obs, batch.extras["next_noise"][i])
            bonus = -float(learner.temperature.log.exp() * log_prob)
        else:
            action = learner.target_policy(obs)
        if name == "td3":
            noise = float(batch.extras["smoothing"][i]) * learner.config.target_policy_noise
            noise = max(-learner.config.target_noise_clip, min(learner.config.target_noise_clip, noise))
            action = torch.tensor([[max(-1.0, min(1.0, float(action) + noise))]])
        lowest = min(float(critic(obs, action)) for critic in learner.target_critics.members)
    return float(batch.reward[i]) + float(batch.discount[i]) * (lowest + bonus)


def reference(name: str, learner: Any, batch: Transitions) -> tuple[Tensor, Tensor]:
    """Return the losses of critics and policy."""
    critic, policy = [], []
    for i in range(len(batch.reward)):
        obs = batch.obs[i : i + 1]
        target = next_target(name, learner, batch, i)
        errors = [one(obs, batch.action[i : i + 1]) - target for one in learner.critics.members]
        critic.append(batch.weight[i] * sum(0.5 * error**2 for error in errors).squeeze())
        if name == "sac":
            action, log_prob = drawn(learner, obs, batch.extras["noise"][i])
            values = torch.stack([one(obs, action) for one in learner.critics.members])
            temperature = learner.temperature.log.exp().detach()
            term = temperature * log_prob - values.min()
        else:
            term = -learner.critics.members[0](obs, learner.policy(obs))
        policy.append(batch.weight[i] * term.squeeze())
    count = max(1, int((batch.weight > 0).sum()))
    return torch.stack(critic).sum() / count, torch.stack(policy).sum() / count


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_gradients_equal_the_reference(make_learner: Callable[..., Any], name: str) -> None:
    learner = make_learner(name, "Continuous", **SMALL)
    scatter(learner)
    batch = with_draws(learner, transitions(24, torch.tensor([1.0, 0.0, 0.25, 2.0] * 6)))
    loss = critic_loss(learner, batch)[0]
    expected = reference(name, learner, batch)
    torch.testing.assert_close(loss, expected[0], rtol=1e-4, atol=1e-5)
    policy = policy_loss(learner, batch)[0]
    for ours, theirs, module in ((loss, expected[0], learner.critics), (policy, expected[1], learner.policy)):
        for got, wanted in zip(gradients_of(ours, module), gradients_of(theirs, module), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_weight_0_change_nothing(make_learner: Callable[..., Any], name: str) -> None:
    learner = make_learner(name, "Continuous", **SMALL)
    scatter(learner)
    weight = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.5])
    batch = with_draws(learner, transitions(5, weight))
    garbage = batch.map(torch.clone)
    for part in (garbage.obs, garbage.action, garbage.reward, garbage.next_obs):
        part[weight == 0] = 7.0
    kept = batch.take(torch.tensor([0, 2, 4]))
    for loss, module in ((critic_loss, learner.critics), (policy_loss, learner.policy)):
        first, second, third = (gradients_of(loss(learner, part)[0], module) for part in (batch, garbage, kept))
        for a, b, c in zip(first, second, third, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_each_loss_trains_its_own_networks(make_learner: Callable[..., Any], name: str) -> None:
    """The policy's loss passes the critics without training them; no gradient is left over, targets get none."""
    learner = make_learner(name, "Continuous", policy_delay=2, **SMALL)
    scatter(learner)
    before = copies(learner)
    clock = Clock(100)
    learner.update(transitions(8), clock)
    assert changed_networks(learner, before) == {"critics"}
    clock.updates = 1
    learner.update(transitions(8), clock)
    wanted = {"critics", "policy", "target_critics", "target_policy", "temperature"}
    assert changed_networks(learner, before) == wanted & set(dict(learner.named_children()))
    assert all(float(one.gradient.abs().max()) == 0 for one in learner.optimizers)
    assert all(parameter.grad is None for target, _ in pairs(learner) for parameter in target.parameters())


def copies(learner: Any) -> dict[str, list[Tensor]]:
    return {name: [p.detach().clone() for p in module.parameters()] for name, module in learner.named_children()}


def changed_networks(learner: Any, before: dict[str, list[Tensor]]) -> set[str]:
    """Return the networks with changed parameters."""
    return {
        name
        for name, module in learner.named_children()
        if any(not torch.equal(now, then) for now, then in zip(module.parameters(), before[name], strict=True))
    }


def test_td3_moves_policy_and_targets_every_second_time(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("td3", "Continuous", **SMALL)
    clock = Clock(100)
    updates = []
    for _ in range(6):
        before = copies(learner)
        result = learner.update(transitions(8), clock)
        clock.updates += 1
        updates.append((len(changed_networks(learner, before)), "loss/policy" in result.metrics))
    assert updates == [(1, False), (4, True)] * 3


def test_td3_smooths_the_target_by_clipped_noise(make_learner: Callable[..., Any]) -> None:
    """All noise beyond the clip is the same; an action at the bound stays there."""
    learner = make_learner("td3", "Continuous", target_policy_noise=0.2, target_noise_clip=0.5, **SMALL)
    noise = torch.tensor([[-9.0], [-2.5], [-1.0], [0.0], [2.0], [2.5], [9.0]])
    batch = replace(transitions(7), share=None, extras={"smoothing": noise})
    with torch.no_grad():
        learner.target_policy.outputs.weight.zero_()
        for center in (0.0, 0.9):
            learner.target_policy.outputs.bias.fill_(math.atanh(center))
            wanted = [min(1.0, center + shift) for shift in (-0.5, -0.5, -0.2, 0.0, 0.4, 0.5, 0.5)]
            reached: list[Tensor] = []
            hook = learner.target_critics.register_forward_pre_hook(
                lambda module, given, to=reached: to.append(given[1])
            )
            critic_loss(learner, batch)
            hook.remove()
            assert reached[-1].ravel().tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_targets_follow_by_polyak_averaging(make_learner: Callable[..., Any], name: str) -> None:
    """target <- (1 - tau) target + tau online, with the online weights after the step."""
    learner = make_learner(name, "Continuous", tau=0.25, policy_delay=1, **SMALL)
    scatter(learner)
    before = [[p.clone() for p in target.parameters()] for target, _ in pairs(learner)]
    places = [[p.data_ptr() for p in target.parameters()] for target, _ in pairs(learner)]
    learner.update(transitions(8), Clock(100))
    for (target, online), olds in zip(pairs(learner), before, strict=True):
        for now, fast, old in zip(target.parameters(), online.parameters(), olds, strict=True):
            torch.testing.assert_close(now, 0.75 * old + 0.25 * fast)
    assert places == [[p.data_ptr() for p in target.parameters()] for target, _ in pairs(learner)]


@pytest.mark.parametrize(("aim", "direction"), [(5.0, 1), (-50.0, -1)])
def test_temperature_moves_the_entropy_to_its_target(
    make_learner: Callable[..., Any], aim: float, direction: int
) -> None:
    """It rises while the entropy is below the target, and falls above it."""
    learner = make_learner("sac", "Continuous", target_entropy=aim, learning_rate=0.1, **SMALL)
    learner.update(transitions(8), Clock(100))
    assert float(learner.temperature.log.detach()) * direction == pytest.approx(0.1, rel=0.01)


def test_temperature_can_be_fixed_and_its_target_depends_on_the_dimensions(make_learner: Callable[..., Any]) -> None:
    learner = make_learner("sac", "Continuous", autotune=False, ent_coef=0.3, **SMALL)
    learner.update(transitions(8), Clock(100))
    assert float(learner.temperature(learner.config.ent_coef)) == pytest.approx(0.3)
    box = spaces.Box(-1, 1, (2, 3), np.float32)
    sac = SAC(Spec(box, box, 1, "here"), SAC.Config(), Context(Seeds(0)))
    assert sac.head.dims == 6  # the target entropy is the negative of it


def test_actions_without_bounds_raise() -> None:
    spec = Spec(spaces.Box(-1, 1, (2,)), spaces.Box(-np.inf, np.inf, (2,)), 1, "Some-v1")
    with pytest.raises(UsageError, match="a tanh needs bounds"):
        SAC(spec, SAC.Config(), Context(Seeds(0)))

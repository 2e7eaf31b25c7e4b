"""rlplug-scale passes the conformance checks; its losses equal slow references with given members and masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import pytest
import torch
from rlplug_scale.dropout import values_with_dropout
from rlplug_scale.many_updates import REDQ, DroQ, DroQConfig, ManyUpdates, REDQConfig
from torch import Tensor

import rlplug_core as rl
from rlplug_core.testing import Check, checks

SMALL = {
    "net.hidden": [16],
    "batch_size": 16,
    "learning_starts": 64,
    "random_steps": 16,
    "gradient_steps": 3,
    "policy_delay": 2,
}
SPEC = rl.Spec(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32), 1, "World")
ROWS = 7


REDQ_CHECKS = checks("redq", options={**SMALL, "n_critics": 3})
DROQ_CHECKS = checks("droq", options={**SMALL, "dropout": 0.3})


@pytest.mark.parametrize("check", [*REDQ_CHECKS, *DROQ_CHECKS], ids=str)
def test_conformance(check: Check) -> None:
    check()


def learner_with(algorithm: type[ManyUpdates], **options: Any) -> ManyUpdates:
    torch.manual_seed(0)
    config = algorithm.Config(net=rl.Net(hidden=(8, 4), activation="relu"), ent_coef=0.3, **options)
    learner = algorithm(SPEC, config, rl.Context(rl.Seeds(0)))
    for parameter in [*learner.critics.parameters(), *learner.target_critics.parameters()]:
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return learner


DROPOUT = {"dropout": 0.4, "target_entropy": -0.5}


def random_batch() -> rl.Transitions:
    torch.manual_seed(1)
    return rl.Transitions(
        weight=torch.tensor([1.0, 1, 0.5, 0, 1, 1, 0.25]),
        share=None,
        obs=torch.rand(ROWS, 3),
        action=torch.rand(ROWS, 2) * 2 - 1,
        reward=torch.randn(ROWS),
        discount=torch.tensor([0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9]),
        next_obs=torch.rand(ROWS, 3),
        index=torch.arange(ROWS),
        extras={},
    )


def slow_q(critic: Any, obs: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
    """Return one critic's value [] of one row, unit by unit: linear, dropout, LayerNorm, ReLU."""
    state = critic.state_dict()
    values = torch.cat([action, obs])  # a Dict's keys are sorted
    start = 0
    for layer in range(2):
        weight, bias = (state[f"layers.linears.{layer}.{name}"] for name in ("weight", "bias"))
        values = torch.stack(
            [row @ values + shift for row, shift in zip(weight, bias, strict=True)]
        )
        if mask is not None:
            values = values * mask[start : start + len(values)]
        start += len(values)
        if f"layers.norms.{layer}.weight" in state:
            scale, shift = (state[f"layers.norms.{layer}.{name}"] for name in ("weight", "bias"))
            variance = (values - values.mean()).square().mean()
            values = (values - values.mean()) / (variance + 1e-5).sqrt() * scale + shift
        values = values.clamp(min=0)
    return (state["output.weight"] @ values + state["output.bias"])[0]


@torch.no_grad()
def slow_losses(
    learner: ManyUpdates, batch: rl.Transitions, noise: Tensor, members: list[int], masks: Any
) -> tuple[float, float]:
    """Return the losses of critics and policy, row by row; `noise` is for next actions, then for actions."""
    config = learner.config
    entropy = -2.0 if config.target_entropy is None else config.target_entropy
    critic_loss = policy_loss = 0.0
    for row in range(ROWS):
        factor = float(batch.weight[row]) / 6  # six rows have a weight
        row_masks = [[None] * config.n_critics if mask is None else mask[:, row] for mask in masks]
        obs, next_obs = batch.obs[row], batch.next_obs[row]
        next_outputs = learner.policy(next_obs[None])
        outputs = learner.policy(obs[None])
        (next_action,), next_log_prob = learner.head.draw(next_outputs, noise[0, row : row + 1])
        (action,), log_prob = learner.head.draw(outputs, noise[1, row : row + 1])
        targets = learner.target_critics
        next_q = min(slow_q(targets[i], next_obs, next_action, row_masks[0][i]) for i in members)
        soft_value = next_q - 0.3 * float(next_log_prob)
        target = batch.reward[row] + batch.discount[row] * soft_value
        total = 0.0
        for i in range(config.n_critics):
            q = slow_q(learner.critics[i], obs, batch.action[row], row_masks[1][i])
            critic_loss += factor * 0.5 * float(q - target) ** 2
            total += float(slow_q(learner.critics[i], obs, action, row_masks[2][i]))
        policy_loss += factor * (0.3 * float(log_prob) - total / config.n_critics)
        policy_loss -= factor * float(np.log(0.3)) * (float(log_prob) + entropy)
    return critic_loss, policy_loss


# Two disjoint sets of members: the lowest of all critics is in at most one of them.
@pytest.mark.parametrize(
    ("algorithm", "options", "members"),
    [
        (REDQ, {"n_critics": 4}, [0, 3]),
        (REDQ, {"n_critics": 4}, [2, 1]),
        (DroQ, DROPOUT, [1, 0]),
    ],
)
def test_losses_equal_a_slow_reference(
    algorithm: type[ManyUpdates], options: dict[str, Any], members: list[int]
) -> None:
    learner = learner_with(algorithm, **options)
    batch = random_batch()
    config = learner.config
    noise = torch.randn(2, ROWS, 2)
    drawn = learner.masks(ROWS, config, uses=3)
    expected = slow_losses(learner, batch, noise, members, drawn.get("masks", [None] * 3))
    batch.extras = {"members": torch.tensor(members), **drawn}
    critic_loss, _ = learner.critic_loss(batch, noise[0], config)
    policy_loss, _ = learner.policy_loss(batch, noise[1], config)
    found = critic_loss.item(), policy_loss.item()
    assert found == pytest.approx(expected, rel=1e-4)


def test_policy_learns_at_every_second_update() -> None:
    learner = learner_with(REDQ, n_critics=2, policy_delay=2)
    batch = random_batch()
    parts = (learner.critics, learner.target_critics, learner.policy, learner.temperature)
    changes = []
    for update in range(4):
        before = [torch.nn.utils.parameters_to_vector(part.parameters()).clone() for part in parts]
        learner.learn(batch, learner.config, rl.Clock(1_000, 100, update))
        after = [torch.nn.utils.parameters_to_vector(part.parameters()) for part in parts]
        changes.append([not torch.equal(*pair) for pair in zip(before, after, strict=True)])
    assert changes == [[True, True, False, False], [True] * 4] * 2


def test_members_are_different_and_all_pairs_are_equally_likely() -> None:
    learner = learner_with(REDQ, n_critics=4, n_targets=2)
    pairs = [tuple(sorted(learner.members(learner.config).tolist())) for _ in range(3_000)]
    counts = [pairs.count((low, high)) for low in range(4) for high in range(low + 1, 4)]
    assert sum(counts) == 3_000
    assert min(counts) > 400  # 500 on average, with a standard deviation of 20


def test_masks_have_mean_1_and_differ_by_use_critic_and_row() -> None:
    learner = learner_with(DroQ, dropout=0.25)
    masks = learner.masks(1_000, learner.config, uses=3)["masks"]
    assert masks.shape == (3, 2, 1_000, 12)
    assert torch.equal(masks.unique(), torch.tensor([0, 1 / 0.75]))
    assert float(masks.mean()) == pytest.approx(1, abs=0.01)
    for mask in (
        masks[0] == masks[1],
        masks[:, 0] == masks[:, 1],
        masks[:, :, 0] == masks[:, :, 1],
    ):
        assert not mask.all()
    assert learner_with(REDQ).masks(5, REDQConfig(), uses=3) == {}


def test_acting_and_critics_without_masks_have_no_dropout() -> None:
    learner = learner_with(DroQ, dropout=0.5)
    obs, action = torch.rand(5, 3), torch.rand(5, 2)
    before = learner.generator.bit_generator.state
    values = learner.critics(obs, action)
    assert torch.equal(values, learner.critics(obs, action))
    batch = replace(random_batch(), extras={"masks": torch.ones(1, 2, 5, 12)}, share=None)
    full = values_with_dropout(learner.critics, batch, obs, action, use=0)
    assert torch.allclose(values, full, atol=1e-6)
    agent = learner.agent()
    clock = rl.Clock(10_000, 9_000, 0)
    first = np.zeros(5, bool)
    acts = [agent.act(obs.numpy(), first, agent.initial(5), clock, explore=False) for _ in range(2)]
    assert np.array_equal(acts[0].action, acts[1].action)
    best = learner.policy(obs).chunk(2, -1)[0].tanh().detach().numpy()
    assert np.allclose(acts[0].action, best, atol=1e-5)
    assert learner.generator.bit_generator.state == before


def test_policy_and_critics_share_the_moments_of_observations() -> None:
    net = rl.Net(hidden=(8,), normalize_obs=True)
    learner = REDQ(SPEC, REDQConfig(net=net, n_critics=2), rl.Context(rl.Seeds(0)))
    moments = [*learner.policy.buffers()]
    assert moments
    for module in (learner.critics[0], learner.critics[1], learner.target_critics[1]):
        shared = {id(buffer) for buffer in module.buffers()}
        assert {id(buffer) for buffer in moments} <= shared


def test_incompatible_options_raise() -> None:
    with pytest.raises(ValueError, match="n_targets is 3, and there are 2 critics"):
        DroQConfig(n_targets=3)
    with pytest.raises(ValueError, match="dropout is 1"):
        DroQConfig(dropout=1.0)
    with pytest.raises(ValueError, match="n_atoms needs sac"):
        REDQConfig(n_atoms=11)

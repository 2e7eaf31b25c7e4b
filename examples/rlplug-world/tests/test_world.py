"""rlplug-world passes the conformance checks; its losses are those of the paper, and zero in an exact model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlplug_world.td_mpc2 import TDMPC2, TDMPC2Config
from torch import Tensor, nn

import rlplug_core as rl
from rlplug_core.testing import Check, checks

CONTINUOUS = "rlplug_core.testing.envs:Continuous"
SMALL = {
    "net.hidden": [16],
    "latent_net.hidden": [16],
    "latent_groups": 2,
    "batch_size": 16,
    "learning_starts": 64,
}
PLANNING = {**SMALL, "planning_samples": 8, "atoms": 1}
AGENT_CHECKS = (
    "seeding",
    "explore",
    "agents",
    "resume",
    "fresh-process",
    "evaluation",
    "decoupled",
)
SPEC = rl.Spec(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (1,), np.float32), 1, "World")


CHECKS = [
    *checks("td-mpc2", options=SMALL),
    *(check for check in checks("td-mpc2", options=PLANNING) if check.name in AGENT_CHECKS),
]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_conformance(check: Check) -> None:
    check()


@pytest.mark.parametrize("options", [SMALL, PLANNING], ids=["policy", "plans"])
def test_td_mpc2_trains_with_tensors(options: dict[str, Any], tmp_path: Path) -> None:
    options = {**options, "num_envs": 4, "total_timesteps": 100, "final_eval_episodes": 1}
    run = rl.train("td-mpc2", "tensor/Pendulum-v1", options, out=tmp_path, hooks=False)
    assert run.status == "finished"


def learner_with(**options: Any) -> TDMPC2:
    net = rl.Net(hidden=(8,))
    config = TDMPC2Config(net=net, latent_net=net, latent_groups=1, **options)
    learner = TDMPC2(SPEC, config, rl.Context(rl.Seeds(0)))
    for parameter in learner.target_critics.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    return learner


def batch_of(
    first: list[list[bool]], valid: list[list[bool]], discount: list[list[float]]
) -> rl.Transitions:
    """Return random sequences; the arguments are [B][T]."""
    flags = [torch.tensor(flag).T.flatten() for flag in (first, valid)]
    count = len(flags[0])
    return rl.Transitions(
        weight=0.5 * flags[1],
        share=None,
        obs=torch.rand(count, 2),
        action=torch.rand(count, 1),
        reward=3 * torch.randn(count),
        discount=torch.tensor(discount).T.flatten(),
        next_obs=torch.rand(count, 2),
        index=torch.arange(len(first)),
        extras={"is_first": flags[0], "valid": flags[1]},
    )


def slow_number(learner: TDMPC2, outputs: Tensor) -> float:
    """Return a prediction [atoms] as a number."""
    if learner.config.atoms == 1:
        return float(outputs[0])
    mean = float((outputs.softmax(0) * torch.linspace(-10, 10, len(outputs))).sum())
    return float(np.sign(mean) * (np.exp(abs(mean)) - 1))


def slow_error(learner: TDMPC2, outputs: Tensor, number: float) -> float:
    """Return the loss of a prediction [atoms]: squared, or the cross-entropy to the two neighbors."""
    if learner.config.atoms == 1:
        return (float(outputs[0]) - number) ** 2
    place = (np.sign(number) * np.log(1 + abs(number)) + 10) / 20 * (len(outputs) - 1)
    low = int(np.floor(place))
    log_probs = outputs.log_softmax(0)
    share = place - low
    return -float((1 - share) * log_probs[low] + share * log_probs[low + 1])


def slow_losses(learner: TDMPC2, batch: rl.Transitions, noise: Tensor) -> dict[str, float]:
    """Return the four losses with a loop over sequences and steps."""
    world = learner.world
    rows = len(batch.index)
    totals = dict.fromkeys(("consistency", "reward", "value", "termination"), 0.0)
    count = 0
    for row in range(rows):
        latent = world.encoder(batch.obs[row : row + 1])
        for step in range(learner.config.horizon):
            at = slice(step * rows + row, step * rows + row + 1)
            if (step and batch.extras["is_first"][at]) or not batch.extras["valid"][at]:
                break
            count += 1
            weight = 0.5 * learner.config.rho**step
            action = batch.action[at]
            discount = float(batch.discount[at])
            following = world.encoder(batch.next_obs[at])
            next_action = learner.head.draw(world.policy(following), noise[at])[0]
            q_values = learner.target_critics(following, next_action)[:, 0]
            target = float(batch.reward[at]) + discount * min(
                slow_number(learner, q) for q in q_values
            )
            predicted = world.step(latent, action)
            if discount:
                totals["consistency"] += weight * float((predicted - following).square().mean())
            rewards = world.reward(latent, action)[0]
            totals["reward"] += weight * slow_error(learner, rewards, float(batch.reward[at]))
            for q in world.critics(latent, action)[:, 0]:
                totals["value"] += weight * slow_error(learner, q, target)
            ended = float(world.termination(latent, action).sigmoid())
            totals["termination"] -= weight * float(np.log(1 - ended if discount else ended))
            latent = predicted
    return {f"loss/{name}": total / count for name, total in totals.items()}


@pytest.mark.parametrize("atoms", [1, 21])
def test_losses_stop_at_the_end_of_an_episode(atoms: int) -> None:
    """A complete sequence, a termination, a truncation and a gap; later episodes do not count."""
    learner = learner_with(atoms=atoms)
    no = False
    yes = True
    live = 0.9
    first = [[yes, no, no], [no, no, yes], [no, yes, no], [no, no, no]]
    valid = [[yes, yes, yes], [yes, yes, yes], [yes, yes, yes], [yes, no, yes]]
    discount = [[live, live, 0.0], [live, 0.0, live], [live, live, 0.0], [live, live, live]]
    batch = batch_of(first, valid, discount)
    noise = torch.randn(12, 1)
    weighted = learner.with_weights(batch, learner.config)
    loss, metrics, latent = learner.model_loss(weighted, noise)
    with torch.no_grad():
        expected = slow_losses(learner, batch, noise)
    found = {name: float(metrics[name]) for name in expected}
    assert found == pytest.approx(expected, abs=1e-5)
    parts = zip((20, 0.1, 0.1, 1.0), expected.values(), strict=True)
    assert float(loss.detach()) == pytest.approx(sum(coef * part for coef, part in parts), abs=1e-4)
    assert not latent.requires_grad


def test_policy_loss_is_that_of_sac_on_latents() -> None:
    learner = learner_with(atoms=1, ent_coef=0.3)
    batch = batch_of([[False] * 3] * 4, [[True] * 3] * 4, [[0.9] * 3] * 4)
    latent, noise = torch.rand(12, 8), torch.randn(12, 1)
    loss, metrics = learner.policy_loss(batch, latent, noise)
    action, log_prob = learner.head.draw(learner.world.policy(latent), noise)
    q = learner.world.critics(latent, action).mean((0, 2))
    expected = 0.5 * (0.3 * log_prob - q).mean()
    of_temperature = 0.5 * (-np.log(0.3) * (log_prob - 1.0)).mean()
    assert float(metrics["loss/policy"]) == pytest.approx(float(expected.detach()), abs=1e-5)
    assert float(loss.detach()) == pytest.approx(
        float((expected + of_temperature).detach()), abs=1e-5
    )


class Lambda(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        result: Tensor = self.function(*inputs)
        return result


def set_exact_model(learner: TDMPC2) -> None:
    """Replace the model by that of a known world: (x, y) becomes (x / 2, y), and the reward is x - (a - y)²."""
    world = learner.world
    world.encoder = Lambda(lambda obs: obs)  # type: ignore[assignment]
    world.norm = Lambda(lambda z: z)  # type: ignore[assignment]
    world.dynamics = Lambda(lambda z, a: torch.stack([z[:, 0] / 2, z[:, 1]], 1))  # type: ignore[assignment]
    world.reward = Lambda(lambda z, a: z[:, :1] - (a - z[:, 1:]).square())  # type: ignore[assignment]
    world.termination = Lambda(lambda z, a: torch.full_like(z[:, 0], -100))  # type: ignore[assignment]
    best = Lambda(lambda z, a: (z[:, :1] / 0.55 - (a - z[:, 1:]).square()).expand(2, -1, -1))
    world.critics = best  # type: ignore[assignment]
    learner.target_critics = best  # type: ignore[assignment]
    follow = Lambda(lambda z: torch.cat([z[:, 1:].atanh(), torch.full_like(z[:, 1:], -20)], 1))
    world.policy = follow  # type: ignore[assignment]


def test_exact_model_has_zero_loss() -> None:
    """The policy takes the best action, so the value after it is x / (1 - 0.9 / 2)."""
    learner = learner_with(atoms=1)
    set_exact_model(learner)
    batch = batch_of([[False] * 3] * 4, [[True] * 3] * 4, [[0.9] * 3] * 4)
    x, y = batch.obs[:4, 0], batch.obs[:4, 1]
    batch.obs[:] = torch.cat([torch.stack([x / 2**t, y], 1) for t in range(3)])
    batch.next_obs[:] = batch.obs / torch.tensor([2.0, 1.0])
    batch.reward[:] = batch.obs[:, 0] - (batch.action[:, 0] - batch.obs[:, 1]).square()
    weighted = learner.with_weights(batch, learner.config)
    loss, _, _ = learner.model_loss(weighted, torch.zeros(12, 1))
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    batch.obs[0, 0] += 1
    wrong, _, _ = learner.model_loss(weighted, torch.zeros(12, 1))
    assert float(wrong.detach()) > 0.01


class Dot(gymnasium.Env[Any, Any]):
    """A bright column in an image; the best action is the position of the column."""

    observation_space = spaces.Box(0, 255, (16, 16, 1), np.uint8)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(16))
        self.steps_left = 4
        return self.observe(), {}

    def observe(self) -> Any:
        image = np.zeros((16, 16, 1), np.uint8)
        image[:, self.place] = 255
        return image

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps_left -= 1
        error = abs(float(action[0]) - (self.place / 7.5 - 1))
        return self.observe(), -error, False, self.steps_left == 0, {}


@pytest.mark.parametrize("samples", [0, 8])
def test_td_mpc2_trains_with_pixels_and_exports(tmp_path: Path, samples: int) -> None:
    options = {
        **SMALL,
        "planning_samples": samples,
        "total_timesteps": 70,
        "checkpoint_every": 66,
        "eval_every": 70,
        "eval_episodes": 1,
        "final_eval_episodes": 1,
    }
    run = rl.train("td-mpc2", f"{__file__}:Dot", options, out=tmp_path, hooks=False)
    observations = np.stack([Dot().reset(seed=seed)[0] for seed in range(5)])
    exported = rl.load(run.export(tmp_path / "export", "final"))
    assert np.allclose(exported(observations), rl.load(run.path, "final")(observations), atol=1e-5)


def test_td_mpc2_finds_the_best_actions(tmp_path: Path) -> None:
    """The best action is x / 2; the action 0 gets -0.083 per step."""
    options = {
        **SMALL,
        "total_timesteps": 600,
        "learning_rate": 3e-3,
        "ent_coef": 0.01,
        "eval_episodes": 5,
        "final_eval_episodes": 5,
    }
    run = rl.train("td-mpc2", CONTINUOUS, options, out=tmp_path, hooks=False)
    assert run.evaluate(200, checkpoint="final").mean > -0.03

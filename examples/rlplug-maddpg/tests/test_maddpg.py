"""MADDPG keeps the contract, its losses are those of a slow reference, and its agents learn to talk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from rlplug_maddpg.maddpg import MADDPG, MADDPGConfig

import rlplug_core as rl
from rlplug_core.testing import Check, checks

WHISPER = "rlplug_maddpg.whisper:Whisper"
SMALL = {"net.hidden": [16], "batch_size": 16, "learning_starts": 40, "random_steps": 16}
ROWS, AGENTS = 5, 3


@pytest.mark.parametrize(
    "check", checks("maddpg", options=SMALL, env=WHISPER, wrap=["world-state"]), ids=str
)
def test_conformance(check: Check) -> None:
    check()


def learner_of(stated: bool) -> MADDPG:
    own = spaces.Box(-1, 1, (2,), np.float32)
    obs: Any = spaces.Dict({"obs": own, "state": spaces.Box(-1, 1, (4,), np.float32)})
    spec = rl.Spec(
        obs if stated else own, spaces.Box(-1, 1, (2,), np.float32), 3, "W", agents=("a", "b", "c")
    )
    config = MADDPGConfig(net=rl.Net(hidden=(8,), activation="relu", output_gain=1.0))
    learner = MADDPG(spec, config, rl.Context(rl.Seeds(0)))
    for network in (learner.target_policy, learner.target_critics):
        for parameter in network.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return learner


def batch_of(stated: bool) -> rl.Transitions:
    """Joint transitions; some agents are absent, and some have just ended."""

    def side() -> dict[str, Any]:
        agents: Any = torch.rand(ROWS, AGENTS, 2)
        if stated:
            state = torch.rand(ROWS, 1, 4).repeat(1, AGENTS, 1)
            agents = {"obs": agents, "state": state}
        return {"agents": agents, "present": (torch.rand(ROWS, AGENTS) < 0.7).float()}

    torch.manual_seed(1)
    extras = {
        "agent_reward": torch.randn(ROWS, AGENTS),
        "agent_terminated": (torch.rand(ROWS, AGENTS) < 0.3).float(),
    }
    return rl.Transitions(
        weight=torch.tensor([1.0, 0.5, 1, 0, 1]),
        share=None,
        obs=side(),
        action=torch.rand(ROWS, AGENTS, 2) * 2 - 1,
        reward=torch.randn(ROWS),
        discount=torch.tensor([0.9, 0.9, 0.0, 0.9, 0.9]),
        next_obs=side(),
        index=torch.arange(ROWS),
        extras=extras,
    )


def own_obs(side: dict[str, Any], row: int, agent: int, stated: bool) -> torch.Tensor:
    agents = side["agents"]["obs"] if stated else side["agents"]
    one: torch.Tensor = agents[row, agent]
    return one


def state_of(side: dict[str, Any], row: int, stated: bool) -> torch.Tensor:
    if stated:
        given: torch.Tensor = side["agents"]["state"][row, 0]
        return given
    present = side["present"][row]
    return torch.cat([own_obs(side, row, agent, False) * present[agent] for agent in range(AGENTS)])


def act(policy: Any, side: dict[str, Any], row: int, agent: int, stated: bool) -> torch.Tensor:
    own = own_obs(side, row, agent, stated)[None]
    found: torch.Tensor = policy.networks[agent]({"obs": own} if stated else own)[0]
    return found * side["present"][row, agent]


@torch.no_grad()
def slow_losses(learner: MADDPG, batch: rl.Transitions, stated: bool) -> tuple[float, float]:
    critic_loss = policy_loss = 0.0
    everyone = range(AGENTS)
    for row in range(ROWS):
        factor = float(batch.weight[row]) / 4  # four rows count
        state = state_of(batch.obs, row, stated)[None]
        next_state = state_of(batch.next_obs, row, stated)[None]
        following = [
            act(learner.target_policy, batch.next_obs, row, one, stated) for one in everyone
        ]
        for agent in everyone:
            if not batch.obs["present"][row, agent]:
                continue
            next_q = learner.target_critics[agent](next_state, torch.cat(following)[None])[0]
            ended = batch.extras["agent_terminated"][row, agent]
            target = batch.extras["agent_reward"][row, agent]
            target = target + (batch.discount[row] * next_q if not ended else 0)
            q = learner.critics[agent](state, batch.action[row].flatten()[None])[0]
            critic_loss += factor * 0.5 * float(q - target) ** 2
            actions = [batch.action[row, one] for one in everyone]
            actions[agent] = act(learner.policy, batch.obs, row, agent, stated)
            policy_loss -= factor * float(
                learner.critics[agent](state, torch.cat(actions)[None])[0]
            )
    return critic_loss, policy_loss


@pytest.mark.parametrize("stated", [False, True])
def test_losses_are_those_of_a_slow_reference(stated: bool) -> None:
    learner, batch = learner_of(stated), batch_of(stated)
    critic_loss, _ = learner.critic_loss(batch, learner.config)
    policy_loss = learner.policy_loss(batch)
    expected = slow_losses(learner, batch, stated)
    assert (critic_loss.item(), policy_loss.item()) == pytest.approx(expected, rel=1e-4)


def test_agents_with_different_spaces_train_in_a_padded_world(tmp_path: Path) -> None:
    pytest.importorskip("mpe2", reason="the extra rlplug-envs[multiagent] is not installed")
    options = {
        **SMALL,
        "total_timesteps": 300,
        "eval_episodes": 1,
        "final_eval_episodes": 1,
        "wrap": ("pad-agents", "world-state"),
        "env.continuous_actions": True,
    }
    env = "pettingzoo/mpe2.simple_adversary_v3"
    assert rl.train("maddpg", env, options, out=tmp_path, hooks=False).status == "finished"


def test_agents_learn_to_talk(tmp_path: Path) -> None:
    """Without a message the best return is -1/3."""
    options = {
        "total_timesteps": 8_000,
        "eval_every": 8_000,
        "final_eval_episodes": 0,
        "wrap": ("world-state",),
    }
    run = rl.train("maddpg", WHISPER, options, out=tmp_path, hooks=False)
    assert run.evaluate(100, checkpoint="final").mean > -0.15

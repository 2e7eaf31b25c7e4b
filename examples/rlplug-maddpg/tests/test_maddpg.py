"""MADDPG passes the conformance checks, its losses equal a slow reference, and its agents learn to communicate."""

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


def learner_of(has_state: bool) -> MADDPG:
    own = spaces.Box(-1, 1, (2,), np.float32)
    obs: Any = spaces.Dict({"obs": own, "state": spaces.Box(-1, 1, (4,), np.float32)})
    spec = rl.Spec(
        obs if has_state else own,
        spaces.Box(-1, 1, (2,), np.float32),
        3,
        "W",
        agents=("a", "b", "c"),
    )
    config = MADDPGConfig(net=rl.Net(hidden=(8,), activation="relu", output_gain=1.0))
    learner = MADDPG(spec, config, rl.Context(rl.Seeds(0)))
    for network in (learner.target_policy, learner.target_critics):
        for parameter in network.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return learner


def batch_of(has_state: bool) -> rl.Transitions:
    """Joint transitions; some agents are absent, and some have terminated."""

    def side() -> dict[str, Any]:
        agents: Any = torch.rand(ROWS, AGENTS, 2)
        if has_state:
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


def own_obs(side: dict[str, Any], row: int, agent: int, has_state: bool) -> torch.Tensor:
    agents = side["agents"]["obs"] if has_state else side["agents"]
    obs: torch.Tensor = agents[row, agent]
    return obs


def state_of(side: dict[str, Any], row: int, has_state: bool) -> torch.Tensor:
    if has_state:
        state: torch.Tensor = side["agents"]["state"][row, 0]
        return state
    present = side["present"][row]
    return torch.cat([own_obs(side, row, agent, False) * present[agent] for agent in range(AGENTS)])


def act(policy: Any, side: dict[str, Any], row: int, agent: int, has_state: bool) -> torch.Tensor:
    own = own_obs(side, row, agent, has_state)[None]
    action: torch.Tensor = policy.networks[agent]({"obs": own} if has_state else own)[0]
    return action * side["present"][row, agent]


@torch.no_grad()
def slow_losses(learner: MADDPG, batch: rl.Transitions, has_state: bool) -> tuple[float, float]:
    critic_loss = policy_loss = 0.0
    agents = range(AGENTS)
    for row in range(ROWS):
        factor = float(batch.weight[row]) / 4  # four rows have a weight
        state = state_of(batch.obs, row, has_state)[None]
        next_state = state_of(batch.next_obs, row, has_state)[None]
        following = [
            act(learner.target_policy, batch.next_obs, row, agent, has_state) for agent in agents
        ]
        for agent in agents:
            if not batch.obs["present"][row, agent]:
                continue
            next_q = learner.target_critics[agent](next_state, torch.cat(following)[None])[0]
            ended = batch.extras["agent_terminated"][row, agent]
            target = batch.extras["agent_reward"][row, agent]
            target = target + (batch.discount[row] * next_q if not ended else 0)
            q = learner.critics[agent](state, batch.action[row].flatten()[None])[0]
            critic_loss += factor * 0.5 * float(q - target) ** 2
            actions = [batch.action[row, other] for other in agents]
            actions[agent] = act(learner.policy, batch.obs, row, agent, has_state)
            policy_loss -= factor * float(
                learner.critics[agent](state, torch.cat(actions)[None])[0]
            )
    return critic_loss, policy_loss


@pytest.mark.parametrize("has_state", [False, True])
def test_losses_equal_a_slow_reference(has_state: bool) -> None:
    learner, batch = learner_of(has_state), batch_of(has_state)
    critic_loss, _ = learner.critic_loss(batch, learner.config)
    policy_loss = learner.policy_loss(batch)
    expected = slow_losses(learner, batch, has_state)
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


def test_agents_learn_to_communicate(tmp_path: Path) -> None:
    """Without a message the best return is -1/3."""
    options = {
        "total_timesteps": 8_000,
        "eval_every": 8_000,
        "final_eval_episodes": 0,
        "wrap": ("world-state",),
    }
    run = rl.train("maddpg", WHISPER, options, out=tmp_path, hooks=False)
    assert run.evaluate(100, checkpoint="final").mean > -0.15

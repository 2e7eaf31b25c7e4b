"""`joint_step`: the steps of all agents of a world as one step, for learners of teams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlplug_core.types import MASK, Array, Obs, Step, tree_map

#: The entries of a joint observation.
AGENTS = "agents"
PRESENT = "present"


def joint_step(step: Step, agents: int) -> Step:
    """Return a step with one row per world, for W worlds of A agents.

    A world's episode ends when all agents that acted in this step end. It is terminated if all of them terminated.

    Args:
        step: rows [W * A]; the agents of a world are adjacent, as in `Spec.agents`.
        agents: A, the number of agents in a world.

    Returns:
        A step with these fields:
        `obs` and `next_obs`: `{"agents": [W, A, ...], "present": float32 [W, A]}`. `present` is 1 for agents that act
        next, and the only mask; observations of absent agents are 0, and their action masks 1.
        `action` [W, A, ...], and `recurrent_state` with arrays [W, A, ...].
        `reward` [W]: the mean over all A agents, so its sum is the reported return.
        `extras`: those of the agents [W, A, ...], `agent_reward` and `agent_terminated` float32 [W, A].
        `valid`, `terminated`, `truncated`, `is_first` [W].
    """
    valid: Array = step.valid.reshape(-1, agents)
    terminated = step.terminated.reshape(valid.shape) & valid
    done = step.truncated.reshape(valid.shape) & valid | terminated
    present = np.logical_or.reduce(valid, 1)
    world_ended: Array = present & np.logical_and.reduce(done | ~valid, 1)
    world_terminated: Array = world_ended & np.logical_and.reduce(terminated | ~valid, 1)
    follows = valid & ~np.where(world_ended[:, None], terminated, done)
    reward = np.where(valid, step.reward.reshape(valid.shape), 0).astype(np.float32)
    agent_extras = {"agent_reward": reward, "agent_terminated": terminated.astype(np.float32)}
    return replace(
        step,
        obs=_joint_obs(step.obs, valid),
        action=joint_rows(step.action, agents),
        reward=reward.sum(1) / np.float32(agents),
        next_obs=_joint_obs(step.next_obs, follows),
        terminated=world_terminated,
        truncated=world_ended & ~world_terminated,
        is_first=np.logical_and.reduce(step.is_first.reshape(valid.shape), 1),
        valid=present,
        ended=bool(world_ended.any()),
        extras=joint_rows(step.extras, agents) | agent_extras,
        recurrent_state=joint_rows(step.recurrent_state, agents),
    )


def joint_rows(tree: object, agents: int) -> Obs:
    """Return nested dictionaries of arrays [W * A, ...] as arrays [W, A, ...]."""
    return tree_map(lambda array: array.reshape(-1, agents, *array.shape[1:]), tree)


def _joint_obs(obs: Obs, present: Array) -> dict[str, Obs]:
    agents_obs = _without_absent(joint_rows(obs, present.shape[1]), present)
    return {AGENTS: agents_obs, PRESENT: present.astype(np.float32)}


def _without_absent(tree: Obs, present: Array) -> Obs:
    """Return arrays [W, A, ...] with 0 for agents that are absent; a mask of actions then allows everything."""
    if isinstance(tree, dict):
        return {
            name: np.where(present[..., None], part, np.ones_like(part))
            if name == MASK
            else _without_absent(part, present)
            for name, part in tree.items()
        }
    shape = (*present.shape, *[1] * (tree.ndim - 2))
    return np.where(present.reshape(shape), tree, np.zeros_like(tree))

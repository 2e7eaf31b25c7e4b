"""Joint transitions of all agents of a world against a log of each world."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rlplug_core.buffers.joint_steps import joint_step
from rlplug_core.buffers.make import PriorityOptions, replay_buffer, replay_from_options
from rlplug_core.buffers.replay import ReplayBuffer, ReplaySchedule
from rlplug_core.clock import Clock
from rlplug_core.errors import UsageError
from rlplug_core.nets.many_agents import JointState, PerAgent, agent_rows, agent_spec
from rlplug_core.seeds import Seeds
from rlplug_core.types import Spec, Step

AGENTS = 3
WORLDS = 2
GAMMA = 0.9


@dataclass
class Moment:
    """One step of a world: observations, actions, rewards and next observations of the agents that are present."""

    seen: dict[int, float]
    actions: dict[int, int]
    rewards: dict[int, float]
    then: dict[int, float] = field(default_factory=dict)
    over: bool = False
    dead: bool = False


def worlds(length: int, seed: int) -> Iterator[tuple[Step, list[Moment]]]:
    """Yield steps of all rows and the moments of each world; agent 2 appears one step late."""
    rng = np.random.default_rng(seed)
    present = [{0, 1} for _ in range(WORLDS)]
    opened = [set(range(AGENTS)) for _ in range(WORLDS)]
    number = 0.0
    obs = np.zeros((WORLDS * AGENTS, 1), np.float32)
    for _ in range(length):
        action = rng.integers(5, size=WORLDS * AGENTS)
        reward = rng.random(WORLDS * AGENTS).astype(np.float32)
        final = obs.copy()
        terminated, truncated, valid, first = (np.zeros(WORLDS * AGENTS, bool) for _ in range(4))
        moments = []
        seen = obs.copy()
        for world in range(WORLDS):
            at = world * AGENTS
            first[[at + agent for agent in opened[world]]] = True
            moment = Moment({}, {}, {})
            there = sorted(present[world])
            for agent in there:
                row = at + agent
                number = number + 1
                valid[row] = True
                final[row] = number
                end = rng.choice(["", "", "terminated", "truncated"])
                terminated[row] = end == "terminated"
                truncated[row] = end == "truncated"
                moment.seen[agent] = float(seen[row, 0])
                moment.actions[agent] = int(action[row])
                moment.rewards[agent] = float(reward[row])
            opened[world] -= present[world]
            ended = {agent for agent in there if terminated[at + agent] or truncated[at + agent]}
            moment.over = ended == set(there)
            moment.dead = moment.over and all(terminated[at + agent] for agent in there)
            cut = {agent for agent in there if truncated[at + agent]}
            stay = cut if moment.over else set(there) - ended
            moment.then = {agent: float(final[at + agent, 0]) for agent in stay}
            present[world] = {0, 1} if moment.over else stay | (opened[world] & {2})
            obs[at : at + AGENTS] = final[at : at + AGENTS]
            if moment.over:
                opened[world] = set(range(AGENTS))
                obs[at : at + AGENTS, 0] = number + 0.5 + np.arange(AGENTS)
                number += AGENTS
            moments.append(moment)
        yield (
            Step(
                obs=seen,
                action=action,
                reward=np.where(valid, reward, np.float32(99)),
                next_obs=final,
                terminated=terminated,
                truncated=truncated,
                is_first=first,
                valid=valid,
                ended=bool((terminated | truncated).any()),
                extras={},
                recurrent_state=None,
            ),
            moments,
        )


def by_agent(values: dict[int, float], default: float = 0.0) -> list[float]:
    return [values.get(agent, default) for agent in range(AGENTS)]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_joint_transitions_equal_the_log(n: int, alpha: float) -> None:
    buffer = replay_buffer(
        200,
        ReplaySchedule(8, 1, 1, 20),
        n_step=n,
        gamma=GAMMA,
        seeds=Seeds(0),
        device=torch.device("cpu"),
        priority=PriorityOptions(alpha=alpha),
        agents=AGENTS,
    )
    log: list[list[Moment]] = []
    count = 0
    for step, moments in worlds(60, seed=3):
        buffer.add(step)
        log.append(moments)
        count += int(step.valid.sum())
    assert buffer.added == count  # env steps are counted for each agent
    index = np.arange((len(log) - n) * WORLDS)
    batch = buffer.gather(index)
    assert any(len(moment.seen) < AGENTS for moments in log for moment in moments)
    for row, number in enumerate(index.tolist()):
        time, world = divmod(number, WORLDS)
        first = last = log[time][world]
        reward = sum(first.rewards.values()) / AGENTS
        discount = GAMMA
        taken = 1
        while taken < n and not last.over:
            last = log[time + taken][world]
            reward += discount * sum(last.rewards.values()) / AGENTS
            discount = discount * GAMMA
            taken = taken + 1
        later = last.then if last.over else log[time + taken][world].seen
        assert batch.obs["present"][row].tolist() == [float(agent in first.seen) for agent in range(AGENTS)]
        assert batch.obs["agents"][row, :, 0].tolist() == by_agent(first.seen)
        assert batch.next_obs["present"][row].tolist() == [float(agent in later) for agent in range(AGENTS)]
        assert batch.next_obs["agents"][row, :, 0].tolist() == by_agent(later)
        assert batch.reward[row].item() == pytest.approx(reward, rel=1e-5)
        assert batch.discount[row].item() == pytest.approx(0 if last.dead else discount, rel=1e-5)
        assert batch.extras["agent_reward"][row].tolist() == pytest.approx(by_agent(first.rewards))
        assert all(batch.action[row, agent] == action for agent, action in first.actions.items())


def test_joint_step_fills_in_absent_agents() -> None:
    """Their observations are zero, and their masks allow all actions."""
    step = next(worlds(1, 0))[0]
    mask = np.array([[1, 0]] * 6, np.int8)
    obs = {"seen": step.obs + 1, "action_mask": mask}
    joint = joint_step(replace(step, obs=obs, next_obs=obs), AGENTS)
    assert joint.obs["agents"]["seen"][:, :, 0].tolist() == [[1, 1, 0]] * 2
    assert joint.obs["agents"]["action_mask"].tolist() == [[[1, 0], [1, 0], [1, 1]]] * 2
    assert joint.is_first.tolist() == [True, True]


def test_per_agent_applies_a_network_to_each_agent() -> None:
    scales = iter(range(1, AGENTS + 1))

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = next(scales)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return obs * self.scale

    network = PerAgent(Scale, AGENTS)
    assert network(torch.ones(6, 1))[:, 0].tolist() == [1, 2, 3, 1, 2, 3]
    with pytest.raises(UsageError, match=r"each of 3 agents .* there are 4 observations; give .* of a world together"):
        network(torch.ones(4, 1))


def test_joint_state_is_the_observations_of_present_agents_or_their_state() -> None:
    names = ("a", "b") * 2
    spec = Spec(spaces.Discrete(3), spaces.Discrete(2), 4, "World", agents=names)
    obs = {"agents": torch.tensor([[0, 2], [1, 1]]), "present": torch.tensor([[1.0, 1.0], [0.0, 1.0]])}
    state = JointState(spec)
    assert state.features == 6
    assert state(obs).tolist() == [[1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0]]
    assert agent_rows(obs).tolist() == [0, 2, 1, 1]
    given = spaces.Dict({"seen": spaces.Discrete(3), "state": spaces.Box(0, 9, (2,))})
    spec = replace(spec, obs=given)
    world = torch.tensor([[[4.0, 5.0], [4.0, 5.0]]])
    obs = {"agents": {"seen": torch.tensor([[0, 1]]), "state": world}, "present": torch.ones(1, 2)}
    assert JointState(spec)(obs).tolist() == JointState(spec, ("state",))(obs).tolist() == [[4, 5]]
    assert JointState(spec, ("seen",))(obs).tolist() == [[1, 0, 0, 0, 1, 0]]
    assert agent_spec(spec).obs == spaces.Dict({"seen": spaces.Discrete(3)})


def test_joint_replay_refuses_turns_and_memories() -> None:
    class Learner:
        spec = Spec(spaces.Discrete(3), spaces.Discrete(2), 2, "Chess", agents=("a", "b"), turns=True)
        config = SimpleNamespace(memory=None)

    learner: Any = Learner()
    with pytest.raises(UsageError, match=r"the agents of Chess act in turn, .* use independent or self-play"):
        replay_from_options(learner, agents=2)
    learner.spec = replace(Learner.spec, turns=False)
    learner.config.memory = "gru"
    with pytest.raises(UsageError, match=r"a memory needs sequences, .* use joint_step in a SequenceReplay"):
        replay_from_options(learner, agents=2)


def test_joint_replay_resumes_exactly() -> None:
    def make() -> ReplayBuffer:
        return replay_buffer(
            100,
            ReplaySchedule(4, 6, 1, 20),
            n_step=1,
            gamma=GAMMA,
            seeds=Seeds(0),
            device=torch.device("cpu"),
            agents=AGENTS,
        )

    buffers = [make(), make()]
    for time, (step, _) in enumerate(worlds(40, seed=1)):
        if time == 20:
            state = buffers[1].state_dict()
            buffers[1] = make()
            buffers[1].load_state_dict(state)
        for buffer in buffers:
            buffer.add(step)
        for expected, batch in zip(*(buffer.batches(Clock(100)) for buffer in buffers), strict=True):
            assert torch.equal(expected.index, batch.index)
            assert torch.equal(expected.obs["agents"], batch.obs["agents"])
            assert torch.equal(expected.next_obs["present"], batch.next_obs["present"])
    assert buffers[0].added > 60

"""Independent learners (Tan, 1993): each agent or group of agents has its own algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import rlplug_core as rl
from rlplug_algos.many_agents.group_buffer import GroupsBuffer
from rlplug_algos.many_agents.groups import Group, groups, take_rows
from rlplug_core.acting.states import begin_acting
from rlplug_core.batches import rows_of
from rlplug_core.config.options import Repeated
from rlplug_core.loop.info_columns import signals_of
from rlplug_core.nets.actions import dtype_of, shape_of
from rlplug_core.plugins.index import DIFFERENT_SPACES
from rlplug_core.plugins.learners import learner_of
from rlplug_core.protocols import SupportsFinish

#: The key of the update counts in a state; no agent can have this name.
UPDATES = "updates of each"


@dataclass(frozen=True)
class IndependentConfig(rl.Config):
    """Options of independent learners."""

    # algorithm of each agent: NAME=ALGORITHM[:option=value,…]; * matches any characters
    agent: Repeated = ("*=ppo",)
    separate: bool = False  # separate weights for each agent if a name matches several


class Independent:
    """Several learners in one world; to each learner, the agents of the others are part of the environment."""

    Config = IndependentConfig
    runners: ClassVar[tuple[str, ...]] = ("sync",)
    actions: ClassVar[tuple[str, ...]] = rl.SPACES
    abilities: ClassVar[tuple[str, ...]] = (DIFFERENT_SPACES,)

    def __init__(
        self,
        spec: rl.Spec,
        config: IndependentConfig,
        context: rl.Context,
    ) -> None:
        self.groups = groups(spec, config.agent, config.separate)
        self.learners = {
            group.name: learner_of(
                group.algorithm, group.spec, replace(context, seeds=context.seeds.child(group.name))
            )
            for group in self.groups
        }
        #: The signals of each learner, with their defaults.
        self.learner_signals = {
            name: signals_of(learner) for name, learner in self.learners.items()
        }
        #: The signals of all learners. Rows of other learners may lack them, so the default is NaN.
        self.signals = {
            name: np.nan for signals in self.learner_signals.values() for name in signals
        }
        #: The fraction of all rows that each learner sees.
        self.shares = {group.name: group.spec.num_envs / spec.num_envs for group in self.groups}
        #: Number of updates of each learner, for its intervals such as `target_update_interval`.
        self.updates = dict.fromkeys(self.learners, 0)

    def agent(self, rank: int = 0, ranks: int = 1) -> GroupsAgent:
        agents = {name: learner.agent(rank, ranks) for name, learner in self.learners.items()}
        return GroupsAgent(self.groups, agents, self.shares)

    def buffer(self) -> GroupsBuffer:
        buffers = {name: learner.buffer() for name, learner in self.learners.items()}
        return GroupsBuffer(self.groups, buffers, self.learner_signals)

    def update(self, batch: tuple[str, Any], clock: rl.Clock) -> rl.Result:
        """Update a group's learner with its batch; the names of metrics end with the group's name."""
        name, group_batch = batch
        result = self.learners[name].update(group_batch, self._clock(name, clock))
        self.updates[name] += 1
        return rl.Result(
            {f"{metric}/{name}": value for metric, value in result.metrics.items()},
            result.priority,
            result.extras,
        )

    def finish(self, clock: rl.Clock) -> None:
        for name, learner in self.learners.items():
            if isinstance(learner, SupportsFinish):
                learner.finish(self._clock(name, clock))

    def _clock(self, name: str, clock: rl.Clock) -> rl.Clock:
        return clock.with_updates(self.updates[name], self.shares[name])

    def state_dict(self) -> rl.State:
        return {
            **{name: learner.state_dict() for name, learner in self.learners.items()},
            UPDATES: dict(self.updates),
        }

    def load_state_dict(self, state: rl.State) -> None:
        self.updates |= state.get(UPDATES, {})  # older checkpoints do not have it
        for name, learner in self.learners.items():
            learner.load_state_dict(state[name])


class GroupsAgent:
    """Acts in the rows of each group with the agent of the group."""

    def __init__(
        self,
        groups: tuple[Group, ...],
        agents: dict[str, rl.Agent],
        shares: dict[str, float],
    ) -> None:
        self.groups = groups
        self.agents = agents
        #: The agents of the groups, wrapped if necessary so that their recurrent states are dictionaries of arrays.
        self.acting = dict(agents)
        self.shares = shares

    def weights(self) -> rl.State:
        return {name: agent.weights() for name, agent in self.agents.items()}

    def initial(self, num_envs: int) -> rl.RecurrentState:
        # A loaded policy starts with one row. Then groups without a row start with one, too.
        rows = {group.name: max(1, len(group.rows(num_envs))) for group in self.groups}
        memories = dict[str, Any]()
        for name, count in rows.items():
            self.acting[name], memories[name] = begin_acting(self.agents[name], count)
        return self._expand_memories(memories, num_envs)

    def act(
        self,
        obs: rl.Obs,
        is_first: rl.Array,
        recurrent_state: rl.RecurrentState,
        clock: rl.Clock,
        explore: bool = True,
    ) -> rl.Act:
        num_envs = rows_of(obs)
        memories = dict[str, Any]()
        extras = dict[str, rl.Array]()
        first = np.broadcast_to(is_first, num_envs)  # a loaded policy passes one flag for all rows
        space = self.groups[0].action
        action = np.zeros((num_envs, *shape_of(space)), dtype_of(space))
        for group in self.groups:
            rows = group.rows(num_envs)
            before = recurrent_state and take_rows(recurrent_state[group.name], rows)
            group_clock = clock.of_part(self.shares[group.name])
            group_act = self.acting[group.name].act(
                take_rows(group.observations_of(obs), rows),
                first[rows],
                before,
                group_clock,
                explore,
            )
            group.write_actions(action, rows, group_act.action)
            memories[group.name] = group_act.recurrent_state
            extras |= {
                f"{group.name}/{key}": _scatter(value, rows, num_envs)
                for key, value in group_act.extras.items()
            }
        return rl.Act(action, self._expand_memories(memories, num_envs), extras)

    def _expand_memories(
        self,
        memories: dict[str, Any],
        num_envs: int,
    ) -> rl.RecurrentState:
        """Return the recurrent states of groups with a row for every agent; None if no group has one."""
        if all(memory is None for memory in memories.values()):
            return None
        rows = {group.name: group.rows(num_envs) for group in self.groups}
        return {
            name: rl.tree_map(lambda leaf, rows=rows[name]: _scatter(leaf, rows, num_envs), memory)
            for name, memory in memories.items()
        }

    def state_dict(self) -> rl.State:
        return {name: agent.state_dict() for name, agent in self.agents.items()}

    def load_state_dict(self, state: rl.State) -> None:
        for name, agent in self.agents.items():
            agent.load_state_dict(state[name])


def _scatter(value: rl.Array, rows: rl.Array, num_envs: int) -> rl.Array:
    """Return an array of all rows with the values of a group's rows, and zeros in the other rows."""
    all_rows = np.zeros((num_envs, *value.shape[1:]), value.dtype)
    all_rows[rows] = value
    return all_rows

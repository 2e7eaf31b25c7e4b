"""Groups of agents: their rows in a world, and their parts of observations and actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from os.path import commonprefix
from typing import Any

import numpy as np

import rlplug_core as rl
from rlplug_core.nets.actions import dtype_of, parts, shape_of


@dataclass(frozen=True)
class Group:
    """Agents that share a learner.

    Attributes:
        name: its name in metrics.
        algorithm: `NAME`, or `NAME:option=value,…`.
        spec: the spaces of its agents; `num_envs` counts its rows.
        places: the indices of its agents in a world.
        agents: number of agents in a world.
        kind: the key of its agents in observations and actions; empty if all agents have the same spaces.
        action: the action space of all agents.
    """

    name: str
    algorithm: str
    spec: rl.Spec
    places: tuple[int, ...]
    agents: int
    kind: str
    action: Any

    def rows(self, num_envs: int) -> rl.Array:
        """Return the numbers of its rows among `num_envs` rows, one world after another."""
        return _rows(self.places, self.agents, num_envs)

    def observations_of(self, obs: rl.Obs) -> rl.Obs:
        """Return its agents' part of observations."""
        return obs[self.kind] if self.kind else obs

    def actions_of(self, action: rl.Array) -> rl.Array:
        """Return its agents' part of actions [B, ...]."""
        if not self.kind:
            return action
        space = self.spec.action
        return (
            action[:, self._columns].reshape(len(action), *shape_of(space)).astype(dtype_of(space))
        )

    def write_actions(
        self,
        action: rl.Array,
        rows: rl.Array,
        group_action: rl.Array,
    ) -> None:
        """Write the actions `group_action` of its rows into `action`, the array of all rows."""
        if self.kind:
            action[rows, self._columns] = group_action.reshape(len(rows), -1)
        else:
            action[rows] = group_action

    @cached_property
    def _columns(self) -> slice:
        columns = [part.columns for part in parts(self.action) if part.keys[0] == self.kind]
        return slice(columns[0].start, columns[-1].stop)


@cache
def _rows(places: tuple[int, ...], agents: int, num_envs: int) -> rl.Array:
    return np.flatnonzero(np.isin(np.arange(num_envs) % agents, places))


def groups(
    spec: rl.Spec,
    words: Iterable[str],
    separate: bool,
) -> tuple[Group, ...]:
    """Return the groups of a world's agents.

    Args:
        spec: spec of the environment; in a single-agent environment, all rows belong to one agent.
        words: `NAME=ALGORITHM[:option=value,…]`, or several separated by commas; the first match counts.
        separate: whether each agent has its own group.

    Raises:
        UsageError: an agent has no algorithm, or a name matches no agent.
    """
    names = tuple(dict.fromkeys(spec.agents)) or ("agent",)
    kinds = dict(zip(spec.agents, spec.kinds, strict=False))
    rules = list(_rules(words, names))
    members: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        rule = next((rule for rule in rules if _name_matches(name, rule[0])), None)
        if rule is None:
            raise rl.UsageError(
                f"agent '{name}' of {spec.id} has no algorithm; add --agent '{name}=ppo'"
            )
        members.setdefault((*rule, kinds.get(name, ""), name if separate else ""), []).append(name)
    return tuple(
        _group(spec, names, algorithm, kind, agents)
        for (_, algorithm, kind, _), agents in members.items()
    )


def _group(
    spec: rl.Spec,
    names: tuple[str, ...],
    algorithm: str,
    kind: str,
    agents: list[str],
) -> Group:
    worlds = spec.num_envs // len(names)
    group_spec = replace(
        spec, num_envs=worlds * len(agents), agents=tuple(agents) * worlds if spec.agents else ()
    )
    if kind:
        group_spec = replace(group_spec, obs=spec.obs[kind], action=spec.action[kind], kinds=())  # type: ignore[index]
    return Group(
        name=_group_name(agents, names),
        algorithm=algorithm,
        spec=group_spec,
        places=tuple(names.index(name) for name in agents),
        agents=len(names),
        kind=kind,
        action=spec.action,
    )


def _group_name(agents: list[str], names: tuple[str, ...]) -> str:
    """Return the name of the only agent, `all` for all agents, the common prefix of their names, or all their names."""
    if len(agents) == 1:
        return agents[0]
    if len(agents) == len(names):
        return "all"
    prefix = commonprefix(agents).rstrip("_")  # noqa: RUF071  # names, not paths
    with_prefix = [name for name in names if name.startswith(prefix)]
    return prefix if prefix and with_prefix == agents else "-".join(agents)


def _rules(
    words: Iterable[str],
    names: tuple[str, ...],
) -> Iterator[tuple[str, str]]:
    """Return pairs of the name of an agent, perhaps with `*`, and its algorithm.

    A piece without a known name belongs to the options of the algorithm before it, which contain commas, too.
    """
    rules: list[list[str]] = []
    for piece in ",".join(words).split(","):
        name, equals, algorithm = piece.partition("=")
        has_options = bool(rules) and ":" in rules[-1][1]
        if equals and any(_name_matches(agent, name.strip()) for agent in names):
            rules.append([name.strip(), algorithm.strip()])
        elif has_options or (rules and not equals):
            rules[-1][1] += f",{piece}"
        else:
            raise rl.UsageError(
                f"--agent '{piece}' matches no agent; agents are {', '.join(names)}"
            )
    return ((name, algorithm) for name, algorithm in rules)


def _name_matches(agent: str, name: str) -> bool:
    """Return whether a name matches an agent: its name, a pattern, or its name without the number."""
    return fnmatchcase(agent, name) or fnmatchcase(agent, f"{name}_*")


def take_rows(tree: Any, rows: rl.Array) -> Any:
    """Return these rows of nested dictionaries of arrays [N, ...]."""
    return rl.tree_map(lambda leaf: leaf[rows], tree)


def take_step_rows(step: rl.Step, rows: rl.Array) -> rl.Step:
    """Return the step of these rows only."""
    terminated = step.terminated[rows]
    truncated = step.truncated[rows]
    return rl.Step(
        obs=take_rows(step.obs, rows),
        action=step.action[rows],
        reward=step.reward[rows],
        next_obs=take_rows(step.next_obs, rows),
        terminated=terminated,
        truncated=truncated,
        is_first=step.is_first[rows],
        valid=step.valid[rows],
        ended=bool((terminated | truncated).any()),
        extras=take_rows(step.extras, rows),
        recurrent_state=take_rows(step.recurrent_state, rows),
    )

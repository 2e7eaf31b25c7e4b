"""A network for each agent of a world, and the state of the world as a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rlplug_core.errors import UsageError
from rlplug_core.nets.encoders import encoder
from rlplug_core.nets.net import Net
from rlplug_core.types import Obs, Spec, first_leaf, tree_map

#: The entry of a Dict observation with the state of the whole world, the same for all its agents.
STATE = "state"


class PerAgent(nn.Module):
    """A network for each agent: observations [W * A, ...] of W worlds to outputs [W * A, ...].

    The agents of a world are adjacent, as in `Spec.agents`.

    Args:
        make: returns a new network.
        agents: A, the number of agents in a world.
    """

    def __init__(self, make: Callable[[], nn.Module], agents: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(make() for _ in range(agents))

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one agent's action, if the networks are deterministic policies."""
        return self.networks[0].shape  # type: ignore[return-value]

    def forward(self, obs: Obs) -> Tensor:
        """Compute the outputs of all agents.

        Args:
            obs: [W * A, ...] observations.

        Returns:
            Outputs [W * A, ...].

        Raises:
            UsageError: the number of rows is not a multiple of A.
        """
        agents = len(self.networks)
        # `rows_of` returns an integer, which torch.export would take for a constant.
        check_whole_worlds(first_leaf(obs).shape[0], agents)
        outputs = [
            network(tree_map(lambda leaf, n=number: leaf[n::agents], obs))
            for number, network in enumerate(self.networks)
        ]
        return torch.stack(outputs, 1).flatten(0, 1)


def check_whole_worlds(rows: int, agents: int) -> None:
    """Raise UsageError if rows are not all agents of each world."""
    if rows % agents:
        raise UsageError(
            f"each of {agents} agents has its own network, and there are {rows} observations; give the "
            "observations of all agents of a world together"
        )


def agents_in(module: nn.Module) -> int:
    """Return the number of agents that have separate networks in a module; 1 if there are none."""
    networks = [part for part in module.modules() if isinstance(part, PerAgent)]
    return max((len(part.networks) for part in networks), default=1)


class JointState(nn.Module):
    """The state of a world as a vector: joint observations of a batch [B, A, ...] to [B, `features`].

    It is the entry `state` of the agents' observations if they have one. Otherwise it is the observations of all
    agents, with zeros for absent agents. Discrete parts are one-hot; images go through the default convolutions.

    Args:
        spec: of the environment.
        keys: of Dict observations, as `critic_net.obs` names them; none for the entry `state`, or all keys without it.
    """

    def __init__(self, spec: Spec, keys: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.agents = spec.agents_per_world
        self.reads_state = _has_state(spec) and keys in ((), (STATE,))
        space = spec.obs.spaces[STATE] if self.reads_state else spec.obs  # type: ignore[attr-defined]
        self.vectors, features = encoder(
            space, Net(hidden=(), obs=() if self.reads_state else keys)
        )
        self.features = features if self.reads_state else features * self.agents

    def forward(self, obs: dict[str, Obs]) -> Tensor:
        """Compute the state.

        Args:
            obs: `obs` or `next_obs` of a joint batch, with B rows.

        Returns:
            The states [B, features].
        """
        if self.reads_state:
            return self.vectors(obs["agents"][STATE][:, 0])
        vectors: Tensor = self.vectors(agent_rows(obs)).unflatten(0, (-1, self.agents))
        present: Tensor = obs["present"]
        return (vectors * present.unsqueeze(2)).flatten(1)


def agent_spec(spec: Spec) -> Spec:
    """Return the spec of the observations of single agents, without the `state` of the world."""
    if not _has_state(spec):
        return spec
    assert isinstance(spec.obs, spaces.Dict)
    agent_obs = {name: part for name, part in spec.obs.spaces.items() if name != STATE}
    return replace(spec, obs=spaces.Dict(agent_obs))


def agent_rows(obs: dict[str, Obs]) -> Obs:
    """Take the observations of single agents from those of a joint batch.

    Args:
        obs: `obs` or `next_obs` of a joint batch: `obs["agents"]` has the shape [B, A, ...].

    Returns:
        Observations [B * A, ...]; the agents of a world are adjacent.
    """
    return tree_map(lambda leaf: leaf.flatten(0, 1), obs["agents"])


def _has_state(spec: Spec) -> bool:
    return isinstance(spec.obs, spaces.Dict) and STATE in spec.obs.spaces

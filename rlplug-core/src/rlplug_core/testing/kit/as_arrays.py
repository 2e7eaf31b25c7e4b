"""`AsArrays`: an environment on a device with arrays in place of its tensors, for the checks of all environments."""

from __future__ import annotations

from dataclasses import fields

from rlplug_core.arrays import to_device, to_host
from rlplug_core.plugins.device_episodes import EndedRows
from rlplug_core.plugins.env_base import EnvBase
from rlplug_core.protocols import Env
from rlplug_core.types import Array, State, Timestep, tree_map

#: The fields of a timestep that are tensors.
TENSORS = ("obs", "final_obs", "reward", "terminated", "truncated", "is_first", "valid")


class AsArrays(EnvBase):
    """An environment on a device with arrays in place of its tensors; on the CPU they share its memory."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.spec = env.spec
        self.device = env.spec.device

    def reset(self, seed: int) -> Timestep:
        return _arrays(self.env.reset(seed))

    def step(self, action: Array) -> Timestep:
        assert self.device is not None
        return _arrays(self.env.step(to_device(action, self.device)))

    def state_dict(self) -> State:
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.env.load_state_dict(state)

    def close(self) -> None:
        self.env.close()


def _arrays(now: Timestep) -> Timestep:
    """Return a timestep with arrays; it reads which episodes have ended."""
    parts = {each.name: getattr(now, each.name) for each in fields(now)}
    for name in TENSORS:
        parts[name] = tree_map(to_host, parts[name])
    episodes = list(now.episodes) if isinstance(now.episodes, EndedRows) else now.episodes
    return Timestep(**{**parts, "episodes": episodes, "ended": bool(episodes)})

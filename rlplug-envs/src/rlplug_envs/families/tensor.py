"""The provider of first-party worlds in torch: `tensor/CartPole-v1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module

from rlplug_core.errors import UnknownEnv, UsageError, did_you_mean
from rlplug_core.plugins.tensor_world import TensorWorld
from rlplug_core.protocols import Env
from rlplug_envs.tensors.adapter import TensorAdapter

NAMESPACE = "tensor/"
#: The module and the class of each world.
WORLDS = {
    "Acrobot-v1": ("acrobot", "Acrobot"),
    "CartPole-v1": ("cart_pole", "CartPole"),
    "MountainCar-v0": ("mountain_car", "MountainCar"),
    "Pendulum-v1": ("pendulum", "Pendulum"),
}


class Tensors:
    """Makes first-party worlds on a device; the argument `device` is the run's own by default."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def on_device(self, device: str) -> Tensors:
        """The same on another device."""
        return Tensors(device)

    def with_arguments(self, arguments: Mapping[str, object]) -> Tensors:
        """The same on the device in the arguments.

        Raises:
            UsageError: there is another argument.
        """
        for name in arguments:
            if name != "device":
                raise UsageError(
                    f"worlds of {NAMESPACE}… take no argument '{name}' (they take device)"
                )
        return Tensors(str(arguments["device"]))

    def ids(self) -> Iterable[str]:
        return sorted(NAMESPACE + name for name in WORLDS)

    def make(self, id: str, num_envs: int) -> Env:
        """Make `num_envs` rows of a world.

        Raises:
            UnknownEnv: there is no such world.
        """
        name, world = _find(id)
        return TensorAdapter(lambda: world(num_envs, self.device), NAMESPACE + name, "")

    def make_shown(self, id: str, render_mode: str) -> Env:
        """Make one row of a world that is watched.

        Raises:
            UnknownEnv: there is no such world. UsageError: it cannot be shown in a window.
        """
        if render_mode != "rgb_array":
            raise UsageError(
                f"{id} has pictures and no window; film it: --video FILE.mp4, or --frames FOLDER"
            )
        return self.make(id, 1)


def _find(id: str) -> tuple[str, type[TensorWorld]]:
    name = id.removeprefix(NAMESPACE)
    if name not in WORLDS:
        near = did_you_mean(NAMESPACE + name, [NAMESPACE + known for known in WORLDS])
        raise UnknownEnv(f"unknown environment '{id}'{near}")
    module, cls = WORLDS[name]
    world: type[TensorWorld] = getattr(import_module(f"rlplug_envs.tensors.{module}"), cls)
    return name, world

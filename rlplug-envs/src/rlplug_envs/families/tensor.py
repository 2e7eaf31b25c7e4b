"""Providers of worlds in torch: the first-party worlds, such as `tensor/CartPole-v1`, and the base for plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import ClassVar, Self, TypeAlias

from rlplug_core.errors import UnknownEnv, UsageError, did_you_mean
from rlplug_core.plugins.tensor_world import TensorWorld
from rlplug_core.protocols import Env, TensorEnv
from rlplug_envs.tensors.adapter import TensorAdapter

#: Makes a number of rows of a world on a device.
MakeRows: TypeAlias = Callable[[int, str], TensorEnv]
NAMESPACE = "tensor/"
#: The module and the class of each world.
WORLDS = {
    "Acrobot-v1": ("acrobot", "Acrobot"),
    "MinAtar-Breakout-v1": ("breakout", "Breakout"),
    "CartPole-v1": ("cart_pole", "CartPole"),
    "MountainCar-v0": ("mountain_car", "MountainCar"),
    "Pendulum-v1": ("pendulum", "Pendulum"),
    "MinAtar-SpaceInvaders-v1": ("space_invaders", "SpaceInvaders"),
}


class DeviceProvider:
    """A provider of environments on one device; the argument `device` is the run's own by default."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def on_device(self, device: str) -> Self:
        """Return the same provider for another device."""
        return type(self)(device)

    def with_arguments(self, arguments: Mapping[str, object]) -> Self:
        """Return the same provider for the device in the arguments.

        Raises:
            UsageError: there is another argument.
        """
        for name in arguments:
            if name != "device":
                namespace, _, _ = next(iter(self.ids())).partition("/")
                raise UsageError(f"{namespace}/… takes no argument '{name}' (it takes device)")
        return type(self)(str(arguments["device"]))

    def ids(self) -> Iterable[str]:
        """Return the ids that are listed."""
        raise NotImplementedError


class TensorProvider(DeviceProvider):
    """The base of providers of environments on a device.

    Attributes:
        worlds: for each id a function of the number of rows and the device, such as a subclass of `TensorWorld`.
    """

    worlds: ClassVar[Mapping[str, MakeRows]]

    def ids(self) -> Iterable[str]:
        return sorted(self.worlds)

    def make(self, id: str, num_envs: int) -> Env:
        """Make `num_envs` rows of a world.

        Raises:
            UnknownEnv: the world does not exist.
        """
        if id not in self.worlds:
            raise UnknownEnv(f"unknown environment '{id}'{did_you_mean(id, self.worlds)}")
        return TensorAdapter(lambda: self.worlds[id](num_envs, self.device), id)

    def make_shown(self, id: str, render_mode: str) -> Env:
        """Make one row of a world that is watched.

        Raises:
            UnknownEnv: the world does not exist. UsageError: it cannot be shown in a window.
        """
        if render_mode != "rgb_array":
            raise UsageError(
                f"{id} has pictures and no window; film it: --video FILE.mp4, or --frames FOLDER"
            )
        return self.make(id, 1)


def _first_party(
    module: str,
    cls: str,
    num_envs: int,
    device: str,
) -> TensorWorld:
    """Make rows of a first-party world, and import its module."""
    world: type[TensorWorld] = getattr(import_module(f"rlplug_envs.tensors.{module}"), cls)
    return world(num_envs, device)


class Tensors(TensorProvider):
    """Makes first-party worlds on a device."""

    worlds: ClassVar[Mapping[str, MakeRows]] = {
        NAMESPACE + name: partial(_first_party, *place) for name, place in WORLDS.items()
    }

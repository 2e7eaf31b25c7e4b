"""The attributes of tensors that FastTensors do not have: reading one raises `NoFastPath`.

A method `__getattr__` would do the same, but it makes Python read every attribute of the class more slowly.
"""

from __future__ import annotations

from torch import Tensor

from rlplug_core.fast.gradients import NoFastPath


class Absent:
    """An attribute that raises `NoFastPath` with its name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Absent:
        if instance is None:
            return self
        raise NoFastPath(f"Tensor.{self.name}")


def add_absent_attributes(kind: type) -> None:
    """Add the attributes of tensors that a class does not have."""
    for name in dir(Tensor):
        if not name.startswith("__") and not hasattr(kind, name):
            absent = Absent()
            absent.__set_name__(kind, name)
            setattr(kind, name, absent)

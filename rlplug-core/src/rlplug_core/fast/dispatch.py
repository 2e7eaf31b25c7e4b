"""The table of functions for FastTensors: a version of each torch function, and of each one marked `overridable`."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from rlplug_core.accelerator import NETWORKS, Function
from rlplug_core.fast.gradients import NoFastPath

#: The result of a faster version of a function, or NotImplemented for arguments that it does not take.
Result: TypeAlias = Any
#: The version of each function; files of `fast` add theirs. If it returns NotImplemented, the plain code runs on
#: FastTensors.
FUNCTIONS: dict[Function, Function] = {}
#: Methods with another name than torch's.
ALIASES = {"absolute": "abs"}
#: Functions of two operands by name; each operand is a FastTensor or a tensor. `functions` fills it.
BINARY: dict[str, Function] = {}


def network_call(*_: object) -> NoReturn:
    """Key of the entry in `FUNCTIONS` for calls of networks, which `trace` sets."""
    raise NoFastPath("networks")


def find(function: Function, kind: type) -> Function:
    """Find the method with the name of a torch function, or the call of a network, and add it to `FUNCTIONS`.

    Args:
        function: a function of torch, or one that is marked `overridable`.
        kind: FastTensor.

    Raises:
        NoFastPath: the method does not exist.
    """
    name = getattr(function, "__name__", "")
    method: Function | None = None
    if function in NETWORKS:
        method = partial(FUNCTIONS[network_call], function)
    elif getattr(Tensor, name, None) is function or getattr(torch, name, None) is function:
        name = ALIASES.get(name, name)
        defined = any(name in vars(base) for base in kind.__mro__[:-1])
        method = BINARY.get(name) or (getattr(kind, name) if defined else None)
    if not callable(method):
        raise NoFastPath(name_of(function))
    FUNCTIONS[function] = method
    return method


def name_of(function: Function) -> str:
    """Return a function's name for messages."""
    name = getattr(function, "__qualname__", getattr(function, "__name__", str(function)))
    return str(name).replace("_TensorBase", "Tensor")

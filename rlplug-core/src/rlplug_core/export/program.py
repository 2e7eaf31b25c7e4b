"""Programs: what a network computes, as JSON and tensors, without the classes that made it.

`torch.export` takes a module apart into operations on tensors; those of torch's core set are named in the JSON, and
nothing else is ever called when a program is read, so that one from a stranger can run no code of theirs.
"""

from __future__ import annotations

import copy
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn

from rlplug_core.errors import RlplugError, UsageError

#: A graph as JSON: the names of its inputs, which of them are tensors of the file, its steps, and its outputs.
Graph: TypeAlias = dict[str, Any]

#: What may be done with sizes, beside operations on tensors.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    f"operator.{name}": getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}
#: What only checks sizes while a module is taken apart.
CHECKS = ("_assert", "sym_constrain_range", "_assert_scalar", "_assert_tensor_metadata")
#: A graph's `view` fits the strides of the example, and the observations of a user have others: a reshape fits all.
_ANY_STRIDES = {
    "aten.view.default": torch.ops.aten.reshape.default,
    "aten._unsafe_view.default": torch.ops.aten.reshape.default,
}
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def traced(
    module: nn.Module, inputs: Sequence[Tensor], names: Sequence[str]
) -> tuple[Graph, dict[str, Tensor]]:
    """A module that takes a list of tensors [B, ...] as a graph, and the tensors it holds.

    Args:
        inputs: examples of what it takes, with a B of at least 2.
        names: what to call them.

    Raises:
        UsageError: it does something that is no function of its inputs alone, or branches on what they hold.
    """
    whole = apart(module, inputs)
    try:
        with quiet():
            return _written(whole.run_decompositions(), list(names))
    except _Unknown as error:
        raise UsageError(
            f"this policy cannot be exported: its network does {error}, which is none of torch's core operations"
        ) from error


def apart(module: nn.Module, inputs: Sequence[Tensor]) -> torch.export.ExportedProgram:
    """The module as `torch.export` sees it, for any number of rows.

    Raises:
        UsageError: as `traced`.
    """
    rows = torch.export.Dim("rows", min=1, max=2**20)
    try:
        with quiet():
            shapes = ([{0: rows} for _ in inputs],)
            return torch.export.export(
                alone(module), (list(inputs),), dynamic_shapes=shapes, strict=False
            )
    except (
        Exception
    ) as error:  # torch.export raises errors of many kinds about a user's own network
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(
            f"this policy cannot be exported: torch.export says '{said[0]}'"
        ) from error


def alone(module: nn.Module) -> nn.Module:
    """A copy that no longer learns: without gradients, and without what a network does in training alone."""
    return copy.deepcopy(module).eval().requires_grad_(False)


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's own deprecations, which a user cannot mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Program:
    """A graph, ready to be called."""

    def __init__(self, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
        self.inputs: list[str] = graph["inputs"]
        self.outputs: list[str] = graph["outputs"]
        self.tensors = tensors
        self._held = {place: tensors[name] for place, name in graph["tensors"].items()}
        self._steps = [
            (name, operation(target), args, kwargs) for name, target, args, kwargs in graph["steps"]
        ]

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """The outputs for inputs [B, ...] by name."""
        values: dict[str, Any] = {**self._held, **{name: inputs[name] for name in self.inputs}}
        with torch.inference_mode():
            for name, function, args, kwargs in self._steps:
                words = {key: _read(value, values) for key, value in kwargs.items()}
                values[name] = function(*(_read(value, values) for value in args), **words)
        return [values[name] for name in self.outputs]


def operation(target: str) -> Callable[..., object]:
    """The operation of this name.

    Raises:
        RlplugError: it is none of torch's core operations.
    """
    if target in ARITHMETIC:
        return ARITHMETIC[target]
    if target in _ANY_STRIDES:
        return _ANY_STRIDES[target]
    found = re.fullmatch(r"aten\.(\w+)\.(\w+)", target)
    packet = getattr(torch.ops.aten, found[1], None) if found else None
    overload = getattr(packet, found[2], None) if found and packet is not None else None
    if not isinstance(overload, torch._ops.OpOverload) or torch.Tag.core not in overload.tags:
        raise RlplugError(
            f"this export asks for '{target}', which is none of torch's core operations; do not use it"
        )
    return overload


class _Unknown(Exception):
    """Something that a graph cannot hold."""


def _written(
    program: torch.export.ExportedProgram, names: list[str]
) -> tuple[Graph, dict[str, Tensor]]:
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    values = {**program.state_dict, **program.constants}
    held: dict[str, str] = {}
    places: dict[str, str] = {}
    steps: list[list[object]] = []
    outputs: list[str] = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and kinds[node.name].kind.name == "USER_INPUT":
            places[node.name] = names[len(places)]
        elif node.op == "placeholder":
            held[node.name] = str(kinds[node.name].target)
        elif node.op == "output":
            outputs = [_name(one, places) for one in node.args[0]]
        elif not (_label(node.target).rpartition("aten.")[2].startswith(CHECKS)):
            steps.append([node.name, _label(node.target), *_plain_all(node, places)])
    graph = {"inputs": names, "tensors": held, "steps": steps, "outputs": outputs}
    return graph, {
        name: values[name].detach().cpu().contiguous().clone() for name in set(held.values())
    }


def _label(target: object) -> str:
    """The name of what a node calls, if a program may call it."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    label = f"operator.{getattr(target, '__name__', target)}"
    if label not in ARITHMETIC:
        raise _Unknown(str(target))
    return label


def _name(node: Any, places: Mapping[str, str]) -> str:
    return places.get(node.name, node.name)


def _plain_all(node: fx.Node, places: Mapping[str, str]) -> list[object]:
    return [
        [_plain(value, places) for value in node.args],
        {key: _plain(value, places) for key, value in node.kwargs.items()},
    ]


def _plain(value: object, places: Mapping[str, str]) -> Any:
    """An argument as JSON."""
    if isinstance(value, fx.Node):
        return {"value": _name(value, places)}
    if isinstance(value, list | tuple):
        return [_plain(item, places) for item in value]
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "cpu"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _Unknown(f"something with a {type(value).__name__}")


def _read(value: object, values: Mapping[str, object]) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, list):
        return [_read(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    if "value" in value:
        return values[value["value"]]
    if "device" in value:
        return torch.device("cpu")
    found = getattr(torch, value["torch"])
    if not isinstance(found, _NAMED):
        raise RlplugError(
            f"this export names torch.{value['torch']}, which is no type of tensors; do not use it"
        )
    return found

"""Programs: the operations of a network as JSON and tensors, without its classes.

`torch.export` splits a module into tensor operations. The JSON contains only operations of torch's core set, and a
loaded program calls only these, so a program from an untrusted source cannot run other code.
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

from rlplug_core.errors import RlplugError, UsageError, plain
from rlplug_core.export.step_sizes import numbers
from rlplug_core.nets.many_agents import agents_in

#: A graph as JSON: names of inputs, names of stored tensors, steps, names of outputs.
Graph: TypeAlias = dict[str, Any]

#: Operations on sizes that are allowed in addition to operations on tensors.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    f"operator.{name}": getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}
#: Operations that only check sizes during the export.
CHECKS = ("_assert", "sym_constrain_range", "_assert_scalar", "_assert_tensor_metadata")
#: A `view` in the graph assumes the strides of the example; observations of a user may have others, so it becomes a
#: `reshape`.
_ANY_STRIDES = {
    "aten.view.default": torch.ops.aten.reshape.default,
    "aten._unsafe_view.default": torch.ops.aten.reshape.default,
}
#: A check runs a program only if it reads and writes at most this many numbers.
SMALL = 2**24
#: The types of arguments that JSON has as names in `torch`.
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def trace(
    module: nn.Module,
    inputs: Sequence[Tensor],
    names: Sequence[str],
) -> tuple[Graph, dict[str, Tensor]]:
    """Return the graph of a module and its stored tensors.

    Args:
        module: its argument is a list of tensors [B, ...].
        inputs: example inputs with a B of at least 2; with a network for each agent, of at least two worlds.
        names: names of the inputs.

    Raises:
        UsageError: an operation depends on more than its inputs, or the code branches on tensor values.
    """
    exported = export_program(module, inputs)
    try:
        with ignore_torch_warnings():
            return _to_graph(exported.run_decompositions(), list(names))
    except _Unsupported as error:
        raise UsageError(
            f"this policy cannot be exported: its network uses {error}, which is not one of torch's core operations"
        ) from error


def export_program(
    module: nn.Module,
    inputs: Sequence[Tensor],
) -> torch.export.ExportedProgram:
    """Return the exported program of a module, for any number of rows; with a network for each agent, of whole worlds.

    Raises:
        UsageError: see `trace`.
    """
    rows = torch.export.Dim("rows", min=1, max=2**20)
    agents = agents_in(module)
    if agents > 1:
        rows = agents * rows
    try:
        with ignore_torch_warnings():
            shapes = ([{0: rows} for _ in inputs],)
            return torch.export.export(
                inference_copy(module), (list(inputs),), dynamic_shapes=shapes, strict=False
            )
    except Exception as error:  # torch.export raises many kinds of errors for a network of a user
        message = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(
            f"this policy cannot be exported: torch.export says '{message[0]}'"
        ) from error


def inference_copy(module: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode and without gradients."""
    return copy.deepcopy(module).eval().requires_grad_(False)


@contextmanager
def ignore_torch_warnings() -> Iterator[None]:
    """Ignore deprecation warnings of torch, which a user cannot fix."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Program:
    """A graph that can be called."""

    def __init__(self, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
        self.inputs: list[str] = graph["inputs"]
        self.outputs: list[str] = graph["outputs"]
        self.tensors = tensors
        self._constants = {value: tensors[name] for value, name in graph["tensors"].items()}
        self._steps = [
            (name, operation(target), args, kwargs) for name, target, args, kwargs in graph["steps"]
        ]

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the outputs for named inputs [B, ...].

        Raises:
            RlplugError: an operation cannot take its inputs.
        """
        try:
            values = self._initial_values(inputs)
            with torch.inference_mode():
                for _ in self._run(values):
                    pass
            return self._outputs_of(values)
        except Exception as error:  # torch raises many kinds of errors for the steps of a stranger
            raise _run_error(error) from error

    def check(self, inputs: Mapping[str, Tensor], most: int) -> None:
        """Run a program that handles few numbers; of a larger one, compute only the shapes of all results.

        Shapes take no memory, but torch imports its compiler for them, which takes a second.

        Raises:
            RlplugError: an operation cannot take its inputs, or gives a tensor of more than `most` numbers.
        """
        try:
            values = self._initial_values(inputs)
            with torch.no_grad():
                if not self._run_if_small(dict(values)):
                    self._check_shapes(values, most)
        except RlplugError:
            raise
        except Exception as error:  # as above
            raise _run_error(error) from error

    def _run_if_small(self, values: dict[str, Any]) -> bool:
        """Run the program; return False before the step with which it would handle more than `SMALL` numbers."""
        total = 0
        for name, function, args, kwargs in self._steps:
            arguments = [_from_json(value, values) for value in args]
            count = numbers(function, arguments)
            total += SMALL + 1 if count is None else count
            if total > SMALL:
                return False
            named = {key: _from_json(value, values) for key, value in kwargs.items()}
            values[name] = function(*arguments, **named)
        self._outputs_of(values)
        return True

    def _check_shapes(self, values: dict[str, Any], most: int) -> None:
        """Compute the shapes of all results; raise RlplugError for one of more than `most` numbers."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode() as mode:
            values = {name: mode.from_tensor(value) for name, value in values.items()}
            for name, value in self._run(values):
                if isinstance(value, Tensor) and value.numel() > most:
                    raise RlplugError(
                        f"this export's step {plain(name)} gives {value.numel():,} numbers; do not use it"
                    )
            self._outputs_of(values)

    def _initial_values(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the stored tensors and the inputs, by the names that steps have for them."""
        return {**self._constants, **{name: inputs[name] for name in self.inputs}}

    def _outputs_of(self, values: Mapping[str, Any]) -> list[Tensor]:
        """Return the outputs; raise KeyError if no step gives one of them."""
        return [values[name] for name in self.outputs]

    def _run(self, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Add the result of each step to `values`, and yield it."""
        for name, function, args, kwargs in self._steps:
            arguments = [_from_json(value, values) for value in args]
            named = {key: _from_json(value, values) for key, value in kwargs.items()}
            values[name] = function(*arguments, **named)
            yield name, values[name]


def _run_error(error: Exception) -> RlplugError:
    """Return the error to raise for an error in a step of a program."""
    message = plain(str(error).partition("\n")[0])
    return RlplugError(
        f"this export's program does not run ({type(error).__name__}: {message}); do not use it"
    )


def operation(target: str) -> Callable[..., object]:
    """Return the operation with this name.

    Raises:
        RlplugError: it is not one of torch's core operations.
    """
    if target in ARITHMETIC:
        return ARITHMETIC[target]
    if target in _ANY_STRIDES:
        return _ANY_STRIDES[target]
    match = re.fullmatch(r"aten\.(\w+)\.(\w+)", target)
    packet = getattr(torch.ops.aten, match[1], None) if match else None
    overload = getattr(packet, match[2], None) if match and packet is not None else None
    backward = "_backward" in target  # no policy has them, and they check their inputs least
    if (
        not isinstance(overload, torch._ops.OpOverload)
        or torch.Tag.core not in overload.tags
        or backward
    ):
        raise RlplugError(
            f"this export uses '{plain(target)}', which is not one of torch's core operations; do not use it"
        )
    return overload


class _Unsupported(Exception):
    """An operation or argument that a graph cannot represent."""


def _to_graph(
    program: torch.export.ExportedProgram,
    names: list[str],
) -> tuple[Graph, dict[str, Tensor]]:
    """Return the graph of an exported program as JSON, and its stored tensors by name."""
    input_specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    values = {**program.state_dict, **program.constants}
    tensors: dict[str, str] = {}
    input_names: dict[str, str] = {}
    steps: list[list[object]] = []
    outputs: list[str] = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and input_specs[node.name].kind.name == "USER_INPUT":
            input_names[node.name] = names[len(input_names)]
        elif node.op == "placeholder":
            tensors[node.name] = str(input_specs[node.name].target)
        elif node.op == "output":
            outputs = [_name(output, input_names) for output in node.args[0]]
        elif not (_label(node.target).rpartition("aten.")[2].startswith(CHECKS)):
            arguments = [_to_json(value, input_names) for value in node.args]
            options = {key: _to_json(value, input_names) for key, value in node.kwargs.items()}
            steps.append([node.name, _label(node.target), arguments, options])
    graph = {"inputs": names, "tensors": tensors, "steps": steps, "outputs": outputs}
    return graph, {
        name: values[name].detach().cpu().contiguous().clone() for name in set(tensors.values())
    }


def _label(target: object) -> str:
    """Return the name of a node's operation.

    Raises:
        _Unsupported: a program may not call it.
    """
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    label = f"operator.{getattr(target, '__name__', target)}"
    if label not in ARITHMETIC:
        raise _Unsupported(str(target))
    return label


def _name(node: Any, input_names: Mapping[str, str]) -> str:
    return input_names.get(node.name, node.name)


def _to_json(value: object, input_names: Mapping[str, str]) -> object:
    """Return an argument as JSON."""
    if isinstance(value, fx.Node):
        return {"value": _name(value, input_names)}
    if isinstance(value, list | tuple):
        return [_to_json(item, input_names) for item in value]
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": "cpu"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _Unsupported(f"an argument of type {type(value).__name__}")


def _from_json(value: object, values: Mapping[str, object]) -> object:
    """Return the argument for its JSON; the inverse of `_to_json`."""
    if isinstance(value, list):
        return [_from_json(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    if "value" in value:
        return values[value["value"]]
    if "device" in value:
        return torch.device("cpu")
    constant = getattr(torch, value["torch"])
    if not isinstance(constant, _NAMED):
        raise RlplugError(
            f"this export names torch.{value['torch']}, which is not a tensor type; do not use it"
        )
    return constant

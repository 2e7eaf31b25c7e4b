"""The networks of a learner as text: layers, shapes and numbers of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from textwrap import wrap

from torch import nn

from rlplug_core.loop.plan import Plan
from rlplug_core.nets.keys import KeyReader
from rlplug_core.plugins.request import RunRequest
from rlplug_core.protocols import AnyLearner

#: A network with more layers than this has a row for each of its modules.
MANY = 6
WIDTH = 80
#: The minimum number of columns for layers, if names are long.
LEAST = 24
NO_BREAK = "\N{NO-BREAK SPACE}"


def networks_of(algorithm: str, env: str) -> str:
    """Return `network_text` of the networks that an algorithm builds for an environment, presets included.

    Raises:
        UsageError, PluginError: they cannot be made.
    """
    plan = Plan.of(RunRequest.make(algorithm, env, {}).with_presets())
    with closing(plan.make_env(1)) as environment:
        return network_text(plan.make_learner(environment.spec))


def network_text(learner: AnyLearner) -> str:
    """Return one row for each trained network of a learner, at 80 columns; "" if it is not a torch module.

    A row has the number of parameters and the layers in their order, such as `Linear 4→64`, after the keys of a Dict
    observation that the network reads, if not all. A network of many layers has a row for each of its modules. Layers
    that two networks share are in the row of the first one.
    """
    if not isinstance(learner, nn.Module):
        return ""
    networks = []
    visited: set[int] = set()
    for name, module in _parts(learner):
        layers = list(_layers(module, visited))
        count = sum(size for _, size in layers)
        if count:
            words = [*_keys(module), *(text for text, _ in layers)]
            networks.append((name, f"{count:,}", words))
    name_width = max((len(name) for name, _, _ in networks), default=0)
    number_width = max((len(number) for _, number, _ in networks), default=0)
    rows: list[str] = []
    for name, number, words in networks:
        title = "" if rows else "network"
        start = f"{title:<13}{name:<{name_width}}  {number:>{number_width}} parameters  "
        rows.append(_wrap(start, _without_repeats(words)))
    return "\n".join(rows)


def _parts(learner: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the networks of a learner by name; in place of a network with many layers, each of its modules."""
    for name, module in learner.named_children():
        own_parameters = next(module.parameters(recurse=False), None)
        if own_parameters is not None or len(list(_layers(module, set()))) <= MANY:
            yield name, module
        else:
            for part, child in module.named_children():
                yield f"{name}.{part}", child


def _without_repeats(words: list[str]) -> list[str]:
    """Return the layers of equal ensemble members once: `2 x (Linear 4→64 · Linear 64→1)`."""
    for size in range(2, len(words) // 2 + 1):
        times, remainder = divmod(len(words), size)
        first, *middle, last = words[:size]
        if remainder == 0 and words == words[:size] * times:
            return [f"{times} x ({first}", *middle, f"{last})"]
    return words


def _wrap(start: str, words: Iterable[str]) -> str:
    """Return a line that starts with `start`; if it is longer than 80 columns, it continues below its first word."""
    unbroken = [word.replace(" ", NO_BREAK) for word in words]
    text = f"{NO_BREAK}· ".join(unbroken)
    columns = max(WIDTH - len(start), LEAST)
    lines = wrap(text, columns, break_long_words=False, break_on_hyphens=False)
    indent = " " * len(start)
    return start + f"\n{indent}".join(lines).replace(NO_BREAK, " ")


def _keys(module: nn.Module) -> list[str]:
    """Return the keys of a Dict observation that a network reads, as `obs KEY,KEY`; empty if it reads all."""
    readers = (part for part in module.modules() if isinstance(part, KeyReader))
    words = dict.fromkeys(f"obs {','.join(reader.keys)}" for reader in readers)
    return list(words)


def _layers(module: nn.Module, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield the text and the number of trained parameters of each layer that is not in `seen`, and add it there."""
    for layer in module.modules():
        parameters = [
            parameter
            for parameter in layer.parameters(recurse=False)
            if parameter.requires_grad and id(parameter) not in seen
        ]
        seen.update(map(id, parameters))
        if parameters:
            yield _layer_text(layer), sum(parameter.numel() for parameter in parameters)


def _layer_text(layer: nn.Module) -> str:
    """Return the class of a layer with its inputs and outputs, or with the shapes of its parameters."""
    kind = type(layer).__name__
    if isinstance(layer, nn.Conv2d):
        kernel = "x".join(map(str, layer.kernel_size))
        return (
            f"{kind} {layer.in_channels}→{layer.out_channels} ({kernel}, stride {layer.stride[0]})"
        )
    shapes = {
        name: tuple(parameter.shape) for name, parameter in layer.named_parameters(recurse=False)
    }
    if len(weight := shapes.get("weight", ())) == 2:
        return f"{kind} {weight[1]}→{weight[0]}"
    if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return f"{kind} {'x'.join(map(str, layer.normalized_shape))}"
    words = (f"{name} {'x'.join(map(str, shape)) or 1}" for name, shape in shapes.items())
    return f"{kind} ({', '.join(words)})"

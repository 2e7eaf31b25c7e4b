"""The networks of a learner in words: layers, shapes and numbers of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from torch import nn

from rlplug_core.loop.plan import Plan
from rlplug_core.nets.keys import KeyReader
from rlplug_core.plugins.request import RunRequest
from rlplug_core.protocols import AnyLearner


def networks_of(algorithm: str, env: str) -> str:
    """Return `network_text` of the networks that an algorithm builds for an environment, presets included.

    Raises:
        UsageError, PluginError: they cannot be made.
    """
    plan = Plan.of(RunRequest.make(algorithm, env, {}).with_presets())
    with closing(plan.make_env(1)) as made:
        return network_text(plan.make_learner(made.spec))


def network_text(learner: AnyLearner) -> str:
    """Return one line for each trained network of a learner; "" if it is not a torch module.

    A network has its number of parameters and its layers in their order, such as `Linear 4→64`, after the keys of a
    Dict observation that it reads, if not all. Layers that two networks share are in the first one.
    """
    if not isinstance(learner, nn.Module):
        return ""
    networks = []
    seen: set[int] = set()
    for name, module in learner.named_children():
        layers = list(_layers(module, seen))
        count = sum(size for _, size in layers)
        if count:
            words = [*_keys(module), *(text for text, _ in layers)]
            networks.append((name, count, " · ".join(words)))
    width = max((len(name) for name, _, _ in networks), default=0)
    lines = [f"{name:<{width}}  {count:>9,} parameters  {text}" for name, count, text in networks]
    return "\n".join(f"{'' if at else 'network':<13}{line}" for at, line in enumerate(lines))


def _keys(module: nn.Module) -> list[str]:
    """Return the keys of a Dict observation that a network reads, as words; none if it reads all."""
    readers = (part for part in module.modules() if isinstance(part, KeyReader))
    words = dict.fromkeys(f"obs {','.join(reader.keys)}" for reader in readers)
    return list(words)


def _layers(module: nn.Module, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield the text and the number of trained parameters of each layer that is not in `seen`, and add it there."""
    for layer in module.modules():
        own = [
            one
            for one in layer.parameters(recurse=False)
            if one.requires_grad and id(one) not in seen
        ]
        seen.update(map(id, own))
        if own:
            yield _layer_text(layer), sum(one.numel() for one in own)


def _layer_text(layer: nn.Module) -> str:
    """Return the kind of a layer with its inputs and outputs, or else with the shapes of its parameters."""
    kind = type(layer).__name__
    if isinstance(layer, nn.Conv2d):
        kernel = "x".join(map(str, layer.kernel_size))
        return (
            f"{kind} {layer.in_channels}→{layer.out_channels} ({kernel}, stride {layer.stride[0]})"
        )
    shapes = {name: tuple(one.shape) for name, one in layer.named_parameters(recurse=False)}
    if len(weight := shapes.get("weight", ())) == 2:
        return f"{kind} {weight[1]}→{weight[0]}"
    words = (f"{name} {'x'.join(map(str, shape)) or 1}" for name, shape in shapes.items())
    return f"{kind} ({', '.join(words)})"

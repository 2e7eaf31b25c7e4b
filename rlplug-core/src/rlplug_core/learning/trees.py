"""Trees that losses take and return, batches, lists, tuples and dictionaries, as flat lists of their tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlplug_core.batches import NAMES, Batch, listed
from rlplug_core.config.options import Config


def described(tree: Any, tensors: list[Tensor], configs: list[Config]) -> Hashable:
    """Return what kind of arguments `tree` holds, and add its tensors and configs to the lists."""
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return tree.shape, tree.dtype
    if isinstance(tree, Batch):  # in the order of its `map`
        parts = tree.counts, *(getattr(tree, name) for name in NAMES.get(type(tree)) or listed(tree))
        return type(tree), *(described(one, tensors, configs) for one in parts)
    if isinstance(tree, dict):
        return *tree, *(described(one, tensors, configs) for one in tree.values())
    if isinstance(tree, list | tuple):
        return type(tree), *(described(one, tensors, configs) for one in tree)
    if isinstance(tree, Config):
        configs.append(tree)
        return type(tree).__qualname__
    known: Hashable = tree
    return known


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to everything that `described` looks at, in its order; batches ask it for tensors alone."""
    if isinstance(tree, Batch):
        return tree.map(function)
    if isinstance(tree, dict):
        return {name: mapped(one, function) for name, one in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(mapped(one, function) for one in tree)
    return function(tree)


def by_type(tensors: list[Tensor]) -> dict[torch.dtype, list[int]]:
    """Return the places of tensors of each type: what is done to all of one type is a single kernel."""
    places: dict[torch.dtype, list[int]] = {}
    for place, one in enumerate(tensors):
        places.setdefault(one.dtype, []).append(place)
    return places


class Packed:
    """The numbers of all tensors of a tree, one after the other for each type, so that they are copied at once."""

    def __init__(self, tree: Any) -> None:
        self.tree, tensors = tree, list[Tensor]()
        described(tree, tensors, [])
        kinds = by_type(tensors)
        self.sizes = {kind: [tensors[place].numel() for place in places] for kind, places in kinds.items()}
        self.numbers: Mapping[torch.dtype, Tensor] = {
            kind: torch.cat([tensors[place].detach().reshape(-1) for place in places]) for kind, places in kinds.items()
        }

    def copied(self) -> Any:
        """Return the tree with copies for its tensors, which know of no gradient."""
        parts = {kind: iter(flat.clone().split(self.sizes[kind])) for kind, flat in self.numbers.items()}
        return mapped(self.tree, lambda one: next(parts[one.dtype]).view(one.shape) if isinstance(one, Tensor) else one)

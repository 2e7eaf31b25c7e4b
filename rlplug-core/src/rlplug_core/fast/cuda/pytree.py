"""Arguments and results of losses, trees of batches, lists, tuples and dictionaries, as flat lists of their leaves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import torch
from torch import Tensor

from rlplug_core.batches import NAMES, Batch, field_names
from rlplug_core.config.options import Config
from rlplug_core.fast.array_batches import Field

#: The classes of leaves other than tensors and configs; a graph is recorded for each of their values.
PLAIN = (type(None), bool, int, float, str)


class Leaves:
    """The tensors and configs of a tree in their order, and the kind of tree.

    `unknown` is the class of a leaf that is something else, which may change or contain tensors; None without one.
    """

    def __init__(self, tree: Field) -> None:
        self.tensors: list[Tensor] = []
        self.configs: list[Config] = []
        self.unknown: type[object] | None = None
        self.kind = self._describe(tree)

    def _describe(self, tree: Field) -> Hashable:
        if isinstance(tree, Tensor):
            self.tensors.append(tree)
            return tree.shape, tree.dtype
        if isinstance(tree, Config):
            self.configs.append(tree)
            return type(tree).__qualname__
        if isinstance(tree, Batch):  # in the order of its `map`
            values = (
                tree.counts,
                *(getattr(tree, name) for name in NAMES.get(type(tree)) or field_names(tree)),
            )
            return type(tree), *map(self._describe, values)
        if isinstance(tree, dict):
            return *tree, *map(self._describe, tree.values())
        if isinstance(tree, list | tuple):
            return type(tree), *map(self._describe, tree)
        if not isinstance(tree, PLAIN):
            self.unknown = type(tree)
            return None
        return tree


def map_tree(tree: Field, function: Callable[[Field], Field]) -> Field:
    """Apply `function` to all leaves in the order of `Leaves`; in batches to tensors only."""
    if isinstance(tree, Batch):
        return tree.map(function)
    if isinstance(tree, dict):
        return {name: map_tree(leaf, function) for name, leaf in tree.items()}
    if isinstance(tree, list | tuple):
        results = [map_tree(leaf, function) for leaf in tree]
        is_named = isinstance(tree, tuple) and type(tree) is not tuple
        return type(tree)(*results) if is_named else type(tree)(results)
    return function(tree)


def by_type(tensors: list[Tensor]) -> dict[torch.dtype, list[int]]:
    """Return the places of the tensors of each type; one kernel can handle all tensors of one type."""
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    return places


class Packed:
    """The numbers of all tensors of a tree in one tensor for each type, so that one kernel copies them."""

    def __init__(self, tree: Field) -> None:
        self.tree, tensors = tree, Leaves(tree).tensors
        kinds = by_type(tensors)
        self.sizes = {
            kind: [tensors[place].numel() for place in places] for kind, places in kinds.items()
        }
        self.numbers: Mapping[torch.dtype, Tensor] = {
            kind: torch.cat([tensors[place].detach().reshape(-1) for place in places])
            for kind, places in kinds.items()
        }

    def copy(self) -> Field:
        """Return the tree with copies of its tensors, without gradients."""
        copies = {
            kind: iter(flat.clone().split(self.sizes[kind])) for kind, flat in self.numbers.items()
        }
        return map_tree(
            self.tree,
            lambda leaf: (
                next(copies[leaf.dtype]).view(leaf.shape) if isinstance(leaf, Tensor) else leaf
            ),
        )

"""State as a flat mapping from paths to copies of arrays and plain values, for bitwise comparisons."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

#: Paths such as `learner/policy.weight` to an array or a plain value.
Leaves: TypeAlias = dict[str, Any]


def leaves(tree: object, path: str = "") -> Leaves:
    """Return copies of all leaves; lists equal tuples, NumPy numbers equal Python numbers, tensors equal arrays."""
    if isinstance(tree, Mapping):
        return {
            key: leaf
            for name, part in tree.items()
            for key, leaf in leaves(part, f"{path}/{name}").items()
        }
    if isinstance(tree, list | tuple):
        return {
            key: leaf
            for index, part in enumerate(tree)
            for key, leaf in leaves(part, f"{path}/{index}").items()
        }
    if isinstance(tree, torch.Tensor):
        tree = tree.detach().cpu().numpy()
    if isinstance(tree, np.ndarray):
        return {path.lstrip("/"): tree.copy()}
    return {path.lstrip("/"): tree.item() if isinstance(tree, np.generic) else tree}


def difference(first: Leaves, second: Leaves) -> str:
    """Return the first path with a different bit, or ""."""
    for path in sorted(first.keys() | second.keys()):
        if path not in first or path not in second or _bits(first[path]) != _bits(second[path]):
            return path
    return ""


def digest(tree: Leaves) -> str:
    """Return a hash of all bits."""
    return hashlib.sha256(
        repr([(path, _bits(leaf)) for path, leaf in sorted(tree.items())]).encode()
    ).hexdigest()


def _bits(leaf: object) -> object:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.str, leaf.shape, leaf.tobytes()
    return repr(leaf)

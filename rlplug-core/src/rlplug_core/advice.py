"""What to do about a run that stopped at a loss or a gradient that is infinite or no number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rlplug_core.checkpoint import Checkpoints, Saved, read
from rlplug_core.config import flatten
from rlplug_core.errors import BadCheckpoint
from rlplug_core.plan import Plan

#: Options that make steps smaller, the first that an algorithm has.
SMALLER = ("lr", "critic_lr", "kl")


def advice(plan: Plan, checkpoints: Checkpoints) -> str:
    """The last good checkpoint of a run, what to look at, and what to type: half the step, at most the usual one."""
    good = last_good(checkpoints)
    place = f"the last good checkpoint is {good.path}" if good else "there is no checkpoint yet"
    now, usual = flatten(plan.config), flatten(type(plan.config)())
    smaller = next((f" --set {name}={min(now[name] / 2, usual[name]):g}" for name in SMALLER if name in now), "")
    return (
        f"{place}; look at the size of rewards and observations, clip gradients or take smaller steps: "
        f"`rlplug run {plan.algorithm} {plan.env}{smaller}` with your other options begins anew"
    )


def last_good(checkpoints: Checkpoints) -> Saved | None:
    """The newest readable checkpoint whose weights are all finite."""
    return next((saved for saved in checkpoints.kept("final", "step", "best") if _finite(saved)), None)


def _finite(saved: Saved) -> bool:
    try:
        components, _ = read(saved.path, "learner")
    except BadCheckpoint:
        return False
    return all(np.isfinite(array).all() for array in _arrays(components))


def _arrays(tree: Any) -> Iterator[Any]:
    """The arrays of floating point numbers in a component."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list):
        for branch in tree:
            yield from _arrays(branch)
    elif isinstance(tree, torch.Tensor) and tree.is_floating_point():
        yield tree.numpy()
    elif isinstance(tree, np.ndarray) and tree.dtype.kind == "f":
        yield tree

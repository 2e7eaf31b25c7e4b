"""Advise what to do about a run that stopped at a NaN or infinite loss or gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rlplug_core.config.schema import flatten
from rlplug_core.errors import BadCheckpoint
from rlplug_core.loop.plan import Plan
from rlplug_core.runs.checkpoint import Checkpoints, Saved, read
from rlplug_core.runs.files import shell_word

#: Options that make steps smaller, and those for whoever a message names with such a word.
SMALLER = ("learning_rate", "critic_learning_rate", "target_kl", "kfac_clip")
NAMED = {"critic": ("critic_learning_rate",), "policy": ("learning_rate", "target_kl", "kfac_clip")}


def advice(plan: Plan, checkpoints: Checkpoints, what: str) -> str:
    """The last good checkpoint of a run, what to look at, and what to type so that the steps of `what` are smaller.

    `what` is the message of a `NonFinite`, which names the optimizer.
    """
    good = last_good(checkpoints)
    place = f"the last good checkpoint is {good.path}" if good else "there is no checkpoint yet"
    smaller = "".join(
        f" --set {name}={value:g}" for name, value in smaller_steps(plan, what).items()
    )
    pair = f"{shell_word(plan.algorithm)} {shell_word(plan.env)}"
    onward = f" --init {shell_word(good.path)}" if good else ""
    return (
        f"{place}; look at the size of rewards and observations, clip gradients or take smaller steps: 'rlplug run "
        f"{pair}{smaller}{onward}' with your other options begins {'there' if good else 'anew'}"
    )


def smaller_steps(plan: Plan, what: str) -> dict[str, float]:
    """Return half of each learning rate or trust region that `what` names, or of all; at most the default."""
    now = flatten(plan.config)
    usual = flatten(type(plan.config)())
    found = {name: now[name] / 2 for name in SMALLER if isinstance(now.get(name), int | float)}
    found = {name: min(half, usual[name] or half) for name, half in found.items()}
    meant = [
        name for word, names in NAMED.items() if word in what for name in names if name in found
    ]
    return {name: found[name] for name in meant or found}


def last_good(checkpoints: Checkpoints) -> Saved | None:
    """The newest readable checkpoint whose weights are all finite."""
    return next(
        (saved for saved in checkpoints.kept("final", "step", "best") if _finite(saved)), None
    )


def _finite(saved: Saved) -> bool:
    try:
        components, _ = read(saved.path, "learner")
    except BadCheckpoint:
        return False
    return all(np.isfinite(array).all() for array in _arrays(components))


def _arrays(tree: object) -> Iterator[Any]:
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

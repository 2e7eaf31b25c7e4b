"""Freeze parts of a learner: weights from another run may stay unchanged while the rest learns."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.errors import UsageError, did_you_mean


def freeze(learner: object, names: Sequence[str]) -> None:
    """Let no gradient step change the parameters under `names`, such as `critic` or `policy.encoder`.

    Raises:
        UsageError: a name has no parameters, or something other than an optimizer changes them.
    """
    if not names:
        return
    if not isinstance(learner, Algorithm):
        raise UsageError(
            f"--freeze needs a learner that builds on Algorithm, which {type(learner).__name__} does not"
        )
    places = {
        id(one): optimizer for optimizer in learner.optimizers for one in optimizer.parameters
    }
    for name in names:
        found = _parameters_named(learner, name)
        if strange := [full for full, one in found.items() if id(one) not in places]:
            raise UsageError(
                f"--freeze {name}: {type(learner).__name__} changes {strange[0]} without an optimizer"
            )
        for one in found.values():
            places[id(one)].frozen.append(places[id(one)].part(one))
        # The input scaling of a frozen part belongs to it, even if others share it.
        modules = learner.named_modules(remove_duplicate=False)
        scales = {id(one) for full, one in modules if f"{full}.".startswith(f"{name}.")}
        learner.running = [one for one in learner.running if id(one) not in scales]


def _parameters_named(
    learner: nn.Module,
    name: str,
) -> dict[str, nn.Parameter]:
    """Return the parameters of this name, or of the module of this name, that are trained."""
    trained = {full: one for full, one in learner.named_parameters() if one.requires_grad}
    found = {full: one for full, one in trained.items() if f"{full}.".startswith(f"{name}.")}
    if not found:
        parts = dict.fromkeys(full.partition(".")[0] for full in trained)
        inner = dict.fromkeys(".".join(full.split(".")[:2]) for full in trained)
        near = did_you_mean(name, [*parts, *inner, *trained])
        raise UsageError(
            f"--freeze {name}: {type(learner).__name__} trains nothing of this name{near} "
            f"(it has {', '.join(parts)})"
        )
    return found

"""Freeze parts of a learner: weights from another run may stay unchanged while the rest learns."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rlplug_core.algorithm import Algorithm
from rlplug_core.errors import UsageError, did_you_mean
from rlplug_core.learning.optimizer import Optimizer


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
    optimizer_of: dict[int, Optimizer] = {}
    for optimizer in learner.optimizers:
        optimizer_of |= dict.fromkeys(map(id, optimizer.parameters), optimizer)
    for name in names:
        parameters = _parameters_named(learner, name)
        if unoptimized := [
            path for path, parameter in parameters.items() if id(parameter) not in optimizer_of
        ]:
            raise UsageError(
                f"--freeze {name}: {type(learner).__name__} changes {unoptimized[0]} without an optimizer"
            )
        for parameter in parameters.values():
            optimizer = optimizer_of[id(parameter)]
            optimizer.frozen.append(optimizer.part(parameter))
        # The input scaling of a frozen part belongs to it, even if others share it.
        modules = learner.named_modules(remove_duplicate=False)
        frozen = {id(module) for path, module in modules if f"{path}.".startswith(f"{name}.")}
        learner.running = [moments for moments in learner.running if id(moments) not in frozen]


def _parameters_named(
    learner: nn.Module,
    name: str,
) -> dict[str, nn.Parameter]:
    """Return the parameters of this name, or of the module of this name, that are trained."""
    trained = {
        path: parameter for path, parameter in learner.named_parameters() if parameter.requires_grad
    }
    parameters = {
        path: parameter for path, parameter in trained.items() if f"{path}.".startswith(f"{name}.")
    }
    if not parameters:
        modules = dict.fromkeys(path.partition(".")[0] for path in trained)
        submodules = dict.fromkeys(".".join(path.split(".")[:2]) for path in trained)
        hint = did_you_mean(name, [*modules, *submodules, *trained])
        raise UsageError(
            f"--freeze {name}: {type(learner).__name__} trains nothing of this name{hint} "
            f"(it has {', '.join(modules)})"
        )
    return parameters
